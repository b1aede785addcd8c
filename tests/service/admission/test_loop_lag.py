"""How far the event loop is behind."""

from __future__ import annotations

import asyncio
import time

from service.admission.loop_lag import LOOP_PASSES, MEASURE_EVERY_S, LoopLag


async def test_a_loop_that_is_blocked_is_seen_to_lag_while_it_still_is_and_once_more_afterwards() -> None:
    now = 0.0
    lag = LoopLag(lambda: now)
    assert lag.wait_s() == 0.0
    now = 0.31
    assert lag.wait_s() > LOOP_PASSES * 0.29  # nobody has woken it yet
    await asyncio.sleep(0.05)  # woken late, and then a look later, at a time that stands still
    assert lag.wait_s() == 0.0


async def test_who_first_asks_after_a_loop_was_blocked_is_told() -> None:
    now = 0.0
    lag = LoopLag(lambda: now)
    lag.wait_s()
    now = 0.31
    time.sleep(2 * MEASURE_EVERY_S)  # noqa: ASYNC251 -- the loop is to be blocked
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert lag.wait_s() > LOOP_PASSES * 0.29


async def test_a_loop_that_answers_does_not_lag() -> None:
    lag = LoopLag(time.monotonic)
    assert lag.wait_s() == 0.0


async def test_the_loop_is_left_alone_when_nobody_asks() -> None:
    looks = 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        return 0.0

    lag = LoopLag(clock)
    lag.wait_s()
    await asyncio.sleep(5 * MEASURE_EVERY_S)
    before = looks
    await asyncio.sleep(5 * MEASURE_EVERY_S)
    assert looks == before
    lag.wait_s()
    await asyncio.sleep(5 * MEASURE_EVERY_S)
    assert looks > before + 2  # it is measured again
