"""Steps after decoding run on the thread that decoded the picture, while the caller already has the result."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from service.imaging.files.decode_cost import LARGE_PIXELS
from service.imaging.pool.codec_work import MEDIUM_PIXELS, SMALL_PIXELS, CodecWork
from service.imaging.pool.parallel_steps import StepRunner
from tests.serving.waiting import until


@asynccontextmanager
async def opened(threads: int) -> AsyncIterator[CodecWork]:
    work = CodecWork(threads)
    yield work
    work.close()


async def test_further_steps_on_the_loop_wait_until_the_callers_messages_are_sent() -> None:
    order: list[str] = []

    def follow(result: str) -> Iterator[None]:
        for part in ("seam", "strip"):
            order.append(f"{part} of {result}")
            asyncio.get_running_loop().call_soon(order.append, "sockets")
            yield

    async with opened(1) as work:
        assert await work.run_decoding(lambda _: "tile", MEDIUM_PIXELS, follow) == "tile"
        order.append("the caller goes on")
        asyncio.get_running_loop().call_soon(order.append, "its message is sent")
        await until(lambda: len(order) == 6)
    assert order == ["the caller goes on", "its message is sent", "seam of tile", "sockets", "strip of tile", "sockets"]


@pytest.mark.parametrize("large", [False, True])
async def test_a_thread_runs_further_steps_while_the_caller_continues_and_is_busy_until_their_end(large: bool) -> None:
    go_on, ran_on = threading.Event(), list[str]()

    def follow(result: str) -> Iterator[None]:
        assert go_on.wait(10)
        yield
        ran_on.append(f"{result}, then {threading.current_thread().name}")

    def name(_: StepRunner) -> str:
        return threading.current_thread().name

    async with opened(1) as work:
        first = await asyncio.wait_for(work.run_decoding(name, LARGE_PIXELS, follow, large=large), 5)
        assert ran_on == [], "the caller has its result"
        second = asyncio.ensure_future(work.run_decoding(name, LARGE_PIXELS, large=large))
        await asyncio.sleep(0.01)
        assert not second.done()
        go_on.set()
        assert await asyncio.wait_for(second, 5) == first
        assert ran_on == [f"{first}, then {first}"]


@pytest.mark.parametrize(("threads", "pixels"), [(1, SMALL_PIXELS), (1, MEDIUM_PIXELS + 1)])
async def test_an_error_in_further_steps_affects_neither_the_caller_nor_later_work(threads: int, pixels: int) -> None:
    async with opened(threads) as work:
        for _ in range(2):
            assert await work.run_decoding(lambda _: 0, pixels, lambda number: map(divmod, [1], [number])) == 0
            await asyncio.sleep(0)


@pytest.mark.parametrize("pixels", [SMALL_PIXELS, MEDIUM_PIXELS + 1])
async def test_failed_work_has_no_further_steps(pixels: int) -> None:
    followed: list[float] = []

    def follow(result: float) -> list[float]:
        followed.append(result)
        return followed

    async with opened(1) as work:
        with pytest.raises(ZeroDivisionError):
            await work.run_decoding(lambda _: 1 // 0, pixels, follow)
        await work.run_decoding(lambda _: None, pixels)
    assert followed == []


@pytest.mark.parametrize("pixels", [MEDIUM_PIXELS, MEDIUM_PIXELS + 1])
async def test_steps_after_decoding_count_for_the_prediction(pixels: int) -> None:
    ended: list[int] = []

    def follow(_: None) -> Iterator[None]:
        yield
        time.sleep(0.1)
        ended.append(1)

    async with opened(1) as work:
        for number in range(3):
            await work.run_decoding(lambda _: None, pixels, follow)
            await until(lambda number=number: len(ended) > number)
        waiting = [asyncio.ensure_future(work.run_decoding(lambda _: time.sleep(0.01), pixels)) for _ in range(5)]
        await asyncio.sleep(0)
        assert work.predicted_wait_s > 3 * 0.01
        await asyncio.gather(*waiting)


async def test_a_thread_with_further_steps_helps_no_other() -> None:
    go_on, names = threading.Event(), [lambda: threading.current_thread().name] * 8

    def follow(_: object) -> Iterator[None]:
        assert go_on.wait(10)
        yield

    async with opened(2) as work:
        await work.run_decoding(lambda _: None, LARGE_PIXELS, follow)
        used = await work.run_decoding(lambda run_steps: run_steps(names), LARGE_PIXELS)
        assert len(set(used)) == 1
        go_on.set()
