"""The pool of codec threads, one of which is reserved for small pictures."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from service.core.errors import NotReady
from service.imaging.pool.thread_pool import CodecPool
from tests.serving.waiting import until, wait_until


@asynccontextmanager
async def opened(threads: int) -> AsyncIterator[CodecPool]:
    pool = CodecPool(threads, "test")
    yield pool
    pool.close()


@pytest.mark.parametrize("threads", [1, 2, 4])
async def test_large_pictures_on_all_threads_do_not_hold_up_a_small_one(threads: int) -> None:
    release = threading.Event()
    async with opened(threads) as pool:
        large = [asyncio.ensure_future(pool.run(release.wait, 10, large=True)) for _ in range(3 * threads)]
        await asyncio.sleep(0)
        assert pool.threads_for_small == 1
        assert await asyncio.wait_for(pool.run(str, 5), 5) == "5"
        release.set()
        assert await asyncio.gather(*large) == [True] * len(large)
        await until(lambda: pool.threads_for_small == threads)


async def test_large_pictures_alone_have_all_threads() -> None:
    meet = threading.Barrier(3)
    async with opened(3) as pool:
        await asyncio.gather(*(pool.run(meet.wait, 10, large=True) for _ in range(3)))


async def test_a_cancelled_large_picture_is_not_begun_and_frees_its_thread() -> None:
    release, done = threading.Event(), list[str]()
    async with opened(1) as pool:
        running = asyncio.ensure_future(pool.run(release.wait, 10, large=True))
        leaving = asyncio.ensure_future(pool.run(done.append, "left", large=True))
        waiting = asyncio.ensure_future(pool.run(done.append, "stayed", large=True))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait({leaving})
        release.set()
        await asyncio.gather(running, waiting)
        assert done == ["stayed"]


async def test_a_thread_counts_as_busy_until_it_is_free_even_if_its_caller_was_cancelled() -> None:
    release = threading.Event()
    async with opened(1) as pool:
        leaving = asyncio.ensure_future(pool.run(release.wait, 10, large=True))
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait({leaving})
        assert await asyncio.wait_for(pool.run(str, 5), 5) == "5", "it does not queue behind what still runs"
        release.set()


async def test_a_large_picture_that_fails_releases_its_thread() -> None:
    async with opened(1) as pool:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await pool.run(lambda: 1 // 0, large=True)
        assert await pool.run(str, 5, large=True) == "5"


async def test_a_thread_that_becomes_free_during_a_cancellation_goes_to_the_next() -> None:
    async with opened(1) as pool:
        tasks = [asyncio.ensure_future(pool.run(str, number, large=True)) for number in range(20)]
        await asyncio.sleep(0)
        for task in tasks[:-1]:
            task.cancel()
        assert await asyncio.wait_for(tasks[-1], 5) == "19"
        await until(lambda: not pool._large)


class Pixels:
    """A stand-in for a picture that a weak reference can watch."""


async def test_cancelled_work_is_not_begun() -> None:
    release, done = threading.Event(), list[str]()
    async with opened(1) as pool:
        running = asyncio.ensure_future(pool.run(release.wait, 10))
        leaving = asyncio.ensure_future(pool.run(done.append, "left"))
        staying = asyncio.ensure_future(pool.run(done.append, "stayed"))
        leaving.cancel()
        release.set()
        await asyncio.gather(running, staying)
    assert done == ["stayed"]


async def test_closing_waits_for_what_runs_and_cancels_what_is_queued() -> None:
    begun, done = threading.Event(), list[str]()
    waiting: list[asyncio.Future[None]] = []

    def work() -> None:
        begun.set()
        wait_until(lambda: waiting and waiting[0].cancelled())
        done.append("ran")

    async with opened(1) as pool:
        running, queued = pool.run(work), asyncio.ensure_future(pool.run(done.append, "queued"))
        waiting.append(queued)
        assert await asyncio.to_thread(begun.wait, 30)
    assert done == ["ran"]
    await running
    with pytest.raises(asyncio.CancelledError):
        await queued
    with pytest.raises(RuntimeError):
        pool.run(str)


async def test_closing_cancels_large_pictures_that_wait_for_a_thread() -> None:
    begun, release, done = threading.Event(), threading.Event(), list[str]()

    def work() -> None:
        begun.set()
        release.wait(5)

    pool = CodecPool(1, "test")
    running = asyncio.ensure_future(pool.run(work, large=True))
    assert await asyncio.to_thread(begun.wait, 5)
    waiting = [asyncio.ensure_future(pool.run(done.append, name, large=True)) for name in ("first", "second")]
    await asyncio.sleep(0)
    release.set()
    pool.close()
    await running
    ended, _ = await asyncio.wait(waiting, timeout=5)
    assert ended == set(waiting)
    assert all(task.cancelled() for task in waiting)
    assert done == []


async def test_a_large_picture_that_closing_removes_from_the_queue_releases_its_thread() -> None:
    begun = threading.Event()

    def work() -> None:
        begun.set()
        wait_until(lambda: pool._common._closed and not pool._large)

    pool = CodecPool(1, "test")
    running = asyncio.ensure_future(pool.run(work))
    queued = asyncio.ensure_future(pool.run(str, large=True))
    assert await asyncio.to_thread(begun.wait, 5)
    pool.close()
    await asyncio.wait({running, queued}, timeout=5)
    assert queued.cancelled()
    with pytest.raises(RuntimeError, match="closed"):
        await asyncio.wait_for(pool.run(str, large=True), 5)


@contextmanager
def a_system_that_starts(threads: int) -> Iterator[None]:
    """Let the system start `threads` threads of the pool, and refuse any further one."""
    start, left = threading.Thread.start, [None] * threads

    def limited(thread: threading.Thread) -> None:
        if thread.name.startswith("test"):
            if not left:
                raise RuntimeError("can't start new thread")
            left.pop()
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", limited)
        yield


@pytest.mark.parametrize("large", [False, True])
async def test_without_a_thread_a_call_is_refused_and_a_later_one_tries_again(large: bool) -> None:
    async with opened(1) as pool:
        with a_system_that_starts(0):
            for _ in range(2):
                with pytest.raises(NotReady, match="cannot start a thread"):
                    await asyncio.wait_for(pool.run(str, 5, large=large), 5)
        assert await asyncio.wait_for(pool.run(str, 5, large=large), 5) == "5"


async def test_a_pool_that_gets_fewer_threads_than_it_asks_for_works_with_those() -> None:
    release = threading.Event()
    async with opened(3) as pool:
        with a_system_that_starts(1):
            assert await asyncio.wait_for(pool.run(str, 5), 5) == "5"
        large = asyncio.ensure_future(pool.run(release.wait, 5, large=True))
        await asyncio.sleep(0)
        assert await asyncio.wait_for(pool.run(str, 6), 5) == "6", "the reserved thread serves small ones"
        release.set()
        assert await large


@pytest.mark.usefixtures("no_collections")
@pytest.mark.parametrize("large", [False, True])
async def test_neither_a_result_nor_an_error_keeps_the_picture_in_memory(large: bool) -> None:
    async with opened(1) as pool:
        for function in (id, int):  # the second one raises
            picture = Pixels()
            watched = weakref.ref(picture)
            done = asyncio.ensure_future(pool.run(function, picture, large=large))
            await asyncio.wait({done})
            assert (done.exception() is None) is (function is id)
            del picture, done
            await until(lambda watched=watched: watched() is None)
