"""Codec work runs on threads, whose queue is predicted, or on the event loop's where no core is spare."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from service.core.pictures import ImageFormat
from service.imaging.files.decode_cost import LARGE_PIXELS
from service.imaging.pool.codec_work import HELPED_PIXELS, MEDIUM_PIXELS, SMALL_PIXELS, CodecWork
from service.imaging.pool.parallel_steps import StepRunner, run_sequentially


def where(run_steps: StepRunner) -> str:
    """Return the kind of thread that runs this, and whether its steps may run on several threads."""
    here = threading.current_thread() is threading.main_thread()
    return ("loop" if here else "thread") + ("" if run_steps is run_sequentially else ", helped")


@asynccontextmanager
async def opened(threads: int, spare_cores: int = 0) -> AsyncIterator[CodecWork]:
    work = CodecWork(threads, lambda: spare_cores)
    yield work
    work.close()


@pytest.mark.parametrize(
    ("threads", "pixels", "expected"),
    [
        (4, SMALL_PIXELS, "loop"),
        (4, SMALL_PIXELS + 1, "thread, helped"),
        (1, HELPED_PIXELS - 1, "loop"),
        (1, HELPED_PIXELS, "loop, helped"),
        (1, MEDIUM_PIXELS, "loop, helped"),
        (1, MEDIUM_PIXELS + 1, "thread, helped"),
        (2, MEDIUM_PIXELS, "thread, helped"),
    ],
)
async def test_small_pictures_stay_on_the_loop_and_medium_ones_where_there_is_one_thread(
    threads: int, pixels: int, expected: str
) -> None:
    async with opened(threads) as work:
        assert await work.run_decoding(where, pixels) == expected
        assert await work.run_encoding(where, pixels, "jpeg", writes=False) == expected


@pytest.mark.parametrize("encoder", ["png", "webp"])
async def test_slower_formats_are_encoded_on_a_thread_at_smaller_sizes(encoder: ImageFormat) -> None:
    async with opened(1) as work:
        assert await work.run_encoding(where, MEDIUM_PIXELS // 4, encoder, writes=False) == "loop"
        assert await work.run_encoding(where, MEDIUM_PIXELS // 4 + 1, encoder, writes=False) == "thread, helped"
        assert await work.run_encoding(where, SMALL_PIXELS, encoder, writes=False) == "loop"


async def test_work_that_writes_to_a_disk_never_runs_on_the_loop() -> None:
    async with opened(1) as work:
        assert await work.run_encoding(where, 1, "jpeg", writes=True) == "thread, helped"


async def test_slow_work_never_runs_on_the_loop_and_leaves_a_thread_for_small_pictures() -> None:
    release = threading.Event()
    async with opened(1) as work:
        stuck = asyncio.ensure_future(work.run_encoding(lambda _: release.wait(10), 1, "jpeg", writes=False, slow=True))
        try:
            await asyncio.wait_for(work.run_encoding(where, 1, "jpeg", writes=True), 5)
        finally:
            release.set()
            await stuck


async def test_work_that_waits_for_the_loop_counts_in_the_prediction() -> None:
    async with opened(1) as work:
        await work.run_decoding(lambda _: time.sleep(0.02), MEDIUM_PIXELS)
        waiting = [asyncio.ensure_future(work.run_decoding(lambda _: None, MEDIUM_PIXELS)) for _ in range(5)]
        await asyncio.sleep(0)
        assert work.predicted_wait_s > 3 * 0.02, "of five one has had its turn, which was a short one"
        await asyncio.gather(*waiting)
        assert work.predicted_wait_s == 0


async def test_cancelled_work_that_waited_for_the_loop_counts_no_more() -> None:
    async with opened(1) as work:
        await work.run_decoding(lambda _: time.sleep(0.02), MEDIUM_PIXELS)
        waiting = [asyncio.ensure_future(work.run_decoding(lambda _: None, MEDIUM_PIXELS)) for _ in range(5)]
        await asyncio.sleep(0)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert work.predicted_wait_s == 0


async def test_the_loop_polls_its_sockets_between_two_medium_pictures() -> None:
    rounds = [0]

    def count() -> None:
        rounds[0] += 1
        asyncio.get_running_loop().call_soon(count)

    async with opened(1) as work:
        count()
        seen = await asyncio.gather(*(work.run_decoding(lambda _: rounds[0], MEDIUM_PIXELS) for _ in range(5)))
        assert len(set(seen)) == 5, "a round of the loop for each"
        small = await asyncio.gather(*(work.run_decoding(lambda _: rounds[0], SMALL_PIXELS) for _ in range(4)))
        assert len(set(small)) == 1
        seen = await asyncio.gather(
            *(work.run_encoding(lambda _: rounds[0], MEDIUM_PIXELS, "jpeg", writes=False) for _ in range(5))
        )
        assert len(set(seen)) == 5


async def test_large_pictures_on_all_threads_do_not_hold_up_small_ones_at_either_end() -> None:
    release = threading.Event()
    async with opened(1) as work:
        stuck = [
            asyncio.ensure_future(work.run_decoding(lambda _: release.wait(10), 10**8, large=True)) for _ in range(2)
        ]
        stuck.append(
            asyncio.ensure_future(work.run_encoding(lambda _: release.wait(10), LARGE_PIXELS, "jpeg", writes=False))
        )
        await asyncio.sleep(0)
        assert await asyncio.wait_for(work.run_decoding(where, LARGE_PIXELS - 1), 5) == "thread, helped"
        assert (
            await asyncio.wait_for(work.run_encoding(where, LARGE_PIXELS - 1, "jpeg", writes=False), 5)
            == "thread, helped"
        )
        release.set()
        await asyncio.gather(*stuck)


async def test_results_and_errors_come_back_from_threads() -> None:
    async with opened(1) as work:
        assert await work.run_decoding(lambda _: 3, LARGE_PIXELS) == 3
        assert await work.run_encoding(lambda _: "5", 1, "png", writes=True) == "5"
        with pytest.raises(ZeroDivisionError):
            await work.run_decoding(lambda _: 1 // 0, LARGE_PIXELS)


async def test_encoding_does_not_wait_behind_decoding() -> None:
    release = threading.Event()
    async with opened(1) as work:
        stuck = asyncio.create_task(work.run_decoding(lambda _: release.wait(10), LARGE_PIXELS))
        await asyncio.sleep(0.01)
        assert await asyncio.wait_for(work.run_encoding(lambda _: 1, 1, "png", writes=True), 5) == 1
        release.set()
        await stuck


async def test_the_wait_is_predicted_from_the_queue_and_the_measured_time() -> None:
    release = threading.Event()
    async with opened(2) as work:
        assert work.predicted_wait_s == 0
        begun = time.perf_counter()
        await work.run_decoding(lambda _: time.sleep(0.05), LARGE_PIXELS)
        tasks = [asyncio.create_task(work.run_decoding(lambda _: release.wait(10), LARGE_PIXELS)) for _ in range(4)]
        await asyncio.sleep(0.01)
        predicted_s, elapsed_s = work.predicted_wait_s, time.perf_counter() - begun
        assert 2 * 0.05 <= predicted_s <= 2 * elapsed_s, "two threads have two such pictures each"
        release.set()
        await asyncio.gather(*tasks)
        await asyncio.sleep(0)
        assert work.predicted_wait_s == 0


async def test_cancelled_work_is_not_begun() -> None:
    release, done = threading.Event(), list[int]()
    async with opened(1) as work:
        running = asyncio.create_task(work.run_decoding(lambda _: release.wait(10), LARGE_PIXELS))
        waiting = asyncio.create_task(work.run_decoding(lambda _: done.append(1), LARGE_PIXELS))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait({waiting})
        release.set()
        await running
        await work.run_decoding(lambda _: None, LARGE_PIXELS)
        assert done == []


async def test_idle_threads_help_a_busy_one() -> None:
    meet = threading.Barrier(2)
    pieces = [lambda: meet.wait(10), lambda: meet.wait(10)]
    async with opened(2) as work:
        assert sorted(await work.run_decoding(lambda run_steps: run_steps(pieces), LARGE_PIXELS)) == [0, 1]


async def test_no_thread_helps_while_all_are_busy() -> None:
    release = threading.Event()
    async with opened(2) as work:
        stuck = asyncio.create_task(work.run_encoding(lambda _: release.wait(10), 1, "png", writes=True))
        await asyncio.sleep(0)
        used = await work.run_decoding(lambda run_steps: run_steps([threading.get_ident] * 4), LARGE_PIXELS)
        assert len(set(used)) == 1
        release.set()
        await stuck


def meet(count: int) -> Callable[[StepRunner], list[str]]:
    """Return work whose steps wait for each other, so that it ends only if `count` threads run them."""
    together = threading.Barrier(count)

    def step() -> str:
        together.wait(10)
        return threading.current_thread().name

    return lambda run_steps: run_steps([step] * count)


@pytest.mark.parametrize("pixels", [MEDIUM_PIXELS, MEDIUM_PIXELS + 1])
async def test_a_process_with_one_thread_is_helped_while_other_cores_are_idle(pixels: int) -> None:
    async with opened(1, spare_cores=15) as work:
        assert len(set(await work.run_decoding(meet(4), pixels))) == 4
        assert len(set(await work.run_encoding(meet(4), pixels, "jpeg", writes=False))) == 4
        assert len(set(await work.run_encoding(meet(4), pixels, "png", writes=True))) == 4


@pytest.mark.parametrize("pixels", [MEDIUM_PIXELS, MEDIUM_PIXELS + 1])
async def test_a_process_with_one_thread_is_not_helped_while_all_cores_are_busy(pixels: int) -> None:
    names, before = [lambda: threading.current_thread().name] * 8, set(threading.enumerate())
    async with opened(1, spare_cores=0) as work:
        assert len(set(await work.run_decoding(lambda run_steps: run_steps(names), pixels))) == 1
        for saved in (False, True):
            done = await work.run_encoding(lambda run_steps: run_steps(names), pixels, "jpeg", writes=saved)
            assert len(set(done)) == 1
        started = set(threading.enumerate()) - before
        assert not [thread for thread in started if thread.name.startswith("help")]


async def test_large_pictures_do_not_change_what_is_predicted_for_small_ones() -> None:
    release = threading.Event()
    async with opened(2) as work:

        def stuck(*, large: bool) -> asyncio.Task[bool]:
            return asyncio.create_task(work.run_decoding(lambda _: release.wait(10), LARGE_PIXELS, large=large))

        begun = time.perf_counter()
        await work.run_decoding(lambda _: time.sleep(0.01), LARGE_PIXELS)
        took_s = time.perf_counter() - begun
        await work.run_decoding(lambda _: time.sleep(0.3), LARGE_PIXELS, large=True)
        tasks = [stuck(large=False), *(stuck(large=True) for _ in range(5))]
        await asyncio.sleep(0)
        assert 0.01 <= work.predicted_wait_s < took_s + 0.01, "one small one is there, and one thread for such"
        release.set()
        await asyncio.gather(*tasks)
