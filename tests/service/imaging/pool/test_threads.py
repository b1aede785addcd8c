"""The pools that decode and encode, and the prediction of their queue."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from service.imaging.pool.threads import CodecThreads


async def test_results_and_errors_come_back() -> None:
    threads = CodecThreads(1)
    assert await threads.begin(lambda a, b: a + b, 1, 2) == 3
    assert await threads.finish(str, 5) == "5"
    with pytest.raises(ZeroDivisionError):
        await threads.begin(lambda: 1 // 0)
    threads.close()


async def test_what_is_finished_does_not_wait_behind_what_is_begun() -> None:
    threads, release = CodecThreads(1), threading.Event()
    stuck = asyncio.create_task(threads.begin(release.wait, 10))
    await asyncio.sleep(0.01)
    assert await asyncio.wait_for(threads.finish(str, 1), 5) == "1"
    release.set()
    await stuck
    threads.close()


async def test_the_wait_is_predicted_from_the_queue_and_the_measured_time() -> None:
    threads, release = CodecThreads(2), threading.Event()
    assert threads.predicted_wait_s == 0
    await threads.begin(time.sleep, 0.05)
    tasks = [asyncio.create_task(threads.begin(release.wait, 10)) for _ in range(4)]
    await asyncio.sleep(0.01)
    assert 0.08 < threads.predicted_wait_s < 1.0
    release.set()
    await asyncio.gather(*tasks)
    await asyncio.sleep(0)
    assert threads.predicted_wait_s == 0
    threads.close()


async def test_work_that_nobody_waits_for_is_not_begun() -> None:
    threads, release, done = CodecThreads(1), threading.Event(), []
    running = asyncio.create_task(threads.begin(release.wait, 10))
    waiting = asyncio.create_task(threads.begin(done.append, 1))
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.wait({waiting})
    release.set()
    await running
    await threads.begin(str, 1)
    assert done == []
    threads.close()


async def test_a_thread_is_helped_by_those_that_have_nothing_to_do() -> None:
    threads, meet = CodecThreads(2), threading.Barrier(2)
    pieces = [lambda: meet.wait(10), lambda: meet.wait(10)]
    assert sorted(await threads.begin(threads.side_by_side, pieces)) == [0, 1]
    threads.close()


async def test_nobody_helps_while_all_threads_are_taken() -> None:
    threads, release = CodecThreads(2), threading.Event()
    stuck = asyncio.create_task(threads.finish(release.wait, 10))
    await asyncio.sleep(0)
    used = await threads.begin(threads.side_by_side, [threading.get_ident] * 4)
    assert len(set(used)) == 1
    release.set()
    await stuck
    threads.close()


async def test_large_pictures_do_not_change_what_is_predicted_for_small_ones() -> None:
    threads, release = CodecThreads(2), threading.Event()
    await threads.begin(time.sleep, 0.01)
    await threads.begin(time.sleep, 0.3, large=True)
    small = asyncio.create_task(threads.begin(release.wait, 10))
    large = [asyncio.create_task(threads.begin(release.wait, 10, large=True)) for _ in range(5)]
    await asyncio.sleep(0)
    assert 0.005 < threads.predicted_wait_s < 0.1, "one small one is there, and one thread for such"
    release.set()
    await asyncio.gather(small, *large)
    threads.close()
