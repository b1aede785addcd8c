"""Pictures are worked on by the event loop's own thread where another would only take the same core from it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from service.core.pictures import ImageFormat
from service.imaging.files.decode_cost import LARGE_PIXELS
from service.imaging.pool.parallel_steps import SideBySide, in_turn
from service.imaging.pool.threads import CodecThreads
from service.imaging.pool.work import MEDIUM_PIXELS, SMALL_PIXELS, CodecWork


def where(side_by_side: SideBySide) -> str:
    """The thread that works, and whether it may have help."""
    here = threading.current_thread() is threading.main_thread()
    return ("loop" if here else "thread") + ("" if side_by_side is in_turn else ", helped")


@asynccontextmanager
async def opened(threads: int) -> AsyncIterator[CodecWork]:
    pool = CodecThreads(threads)
    yield CodecWork(pool)
    pool.close()


@pytest.mark.parametrize(
    ("threads", "pixels", "expected"),
    [
        (4, SMALL_PIXELS, "loop"),
        (4, SMALL_PIXELS + 1, "thread, helped"),
        (1, MEDIUM_PIXELS, "loop"),
        (1, MEDIUM_PIXELS + 1, "thread, helped"),
        (2, MEDIUM_PIXELS, "thread, helped"),
    ],
)
async def test_small_pictures_stay_on_the_loop_and_medium_ones_where_there_is_one_thread(
    threads: int, pixels: int, expected: str
) -> None:
    async with opened(threads) as work:
        assert await work.begin(where, pixels) == expected
        assert await work.finish(where, pixels, "jpeg", writes=False) == expected


@pytest.mark.parametrize("encoder", ["png", "webp"])
async def test_what_takes_longer_to_encode_goes_to_a_thread_sooner(encoder: ImageFormat) -> None:
    async with opened(1) as work:
        assert await work.finish(where, MEDIUM_PIXELS // 4, encoder, writes=False) == "loop"
        assert await work.finish(where, MEDIUM_PIXELS // 4 + 1, encoder, writes=False) == "thread, helped"
        assert await work.finish(where, SMALL_PIXELS, encoder, writes=False) == "loop"


async def test_what_writes_to_a_disk_never_stays_on_the_loop() -> None:
    async with opened(1) as work:
        assert await work.finish(where, 1, "jpeg", writes=True) == "thread, helped"


async def test_what_waits_for_a_turn_on_the_loop_counts_for_the_prediction() -> None:
    async with opened(1) as work:
        await work.begin(lambda _: time.sleep(0.02), MEDIUM_PIXELS)
        waiting = [asyncio.ensure_future(work.begin(lambda _: None, MEDIUM_PIXELS)) for _ in range(5)]
        await asyncio.sleep(0)
        assert work.threads.predicted_wait_s > 3 * 0.02, "of five one has had its turn, which was a short one"
        await asyncio.gather(*waiting)
        assert work.threads.predicted_wait_s == 0


async def test_who_leaves_while_waiting_for_a_turn_counts_no_more() -> None:
    async with opened(1) as work:
        await work.begin(lambda _: time.sleep(0.02), MEDIUM_PIXELS)
        waiting = [asyncio.ensure_future(work.begin(lambda _: None, MEDIUM_PIXELS)) for _ in range(5)]
        await asyncio.sleep(0)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert work.threads.predicted_wait_s == 0


async def test_the_loop_sees_to_its_sockets_between_two_medium_pictures() -> None:
    rounds = [0]

    def count() -> None:
        rounds[0] += 1
        asyncio.get_running_loop().call_soon(count)

    async with opened(1) as work:
        count()
        seen = await asyncio.gather(*(work.begin(lambda _: rounds[0], MEDIUM_PIXELS) for _ in range(5)))
        assert len(set(seen)) == 5, "a round of the loop for each"
        small = await asyncio.gather(*(work.begin(lambda _: rounds[0], SMALL_PIXELS) for _ in range(4)))
        assert len(set(small)) == 1
        seen = await asyncio.gather(
            *(work.finish(lambda _: rounds[0], MEDIUM_PIXELS, "jpeg", writes=False) for _ in range(5))
        )
        assert len(set(seen)) == 5


async def test_large_pictures_on_all_threads_do_not_hold_up_small_ones_at_either_end() -> None:
    release = threading.Event()
    async with opened(1) as work:
        stuck = [asyncio.ensure_future(work.begin(lambda _: release.wait(10), 10**8, large=True)) for _ in range(2)]
        stuck.append(asyncio.ensure_future(work.finish(lambda _: release.wait(10), LARGE_PIXELS, "jpeg", writes=False)))
        await asyncio.sleep(0)
        assert await asyncio.wait_for(work.begin(where, LARGE_PIXELS - 1), 5) == "thread, helped"
        assert await asyncio.wait_for(work.finish(where, LARGE_PIXELS - 1, "jpeg", writes=False), 5) == "thread, helped"
        release.set()
        await asyncio.gather(*stuck)
