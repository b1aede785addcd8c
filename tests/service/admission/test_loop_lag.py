"""The lag of the event loop."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from service.admission.loop_lag import LOOP_PASSES, LoopLag
from tests.serving.waiting import until


async def test_a_blocked_loop_reports_its_lag_during_the_block_and_once_afterwards() -> None:
    now = 0.0
    lag = LoopLag(lambda: now)
    watching = asyncio.create_task(lag.watch())
    await asyncio.sleep(0)
    assert lag.wait_s == 0.0
    now = 0.31
    assert lag.wait_s > LOOP_PASSES * 0.29  # the watcher has not been woken yet
    await until(lambda: lag.wait_s == 0.0)  # the watcher wakes late, then once more, while the clock stands still
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching


async def test_a_responsive_loop_has_no_lag() -> None:
    lag = LoopLag(time.monotonic)
    assert lag.wait_s == 0.0


async def test_measuring_pauses_while_the_lag_is_not_read_and_resumes_at_the_next_read() -> None:
    looks, now = 0, 0.0

    def clock() -> float:
        nonlocal looks
        looks += 1
        return now

    lag = LoopLag(clock)
    watching = asyncio.create_task(lag.watch())
    await until(lambda: lag._paused is not None)
    before = looks
    await asyncio.sleep(0.1)
    assert looks == before
    now = 5.0
    assert lag.wait_s == 0.0  # the watcher paused, so it is not overdue
    now = 5.31
    assert lag.wait_s > LOOP_PASSES * 0.29  # blocked since the first call of wait_s
    await asyncio.sleep(0)
    assert lag.wait_s > LOOP_PASSES * 0.29
    await until(lambda: lag.wait_s == 0.0)
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
