"""How far the event loop is behind."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from service.admission.loop_lag import LOOP_PASSES, LoopLag


async def test_a_loop_that_is_blocked_is_seen_to_lag_while_it_still_is_and_once_more_afterwards() -> None:
    now = 0.0
    lag = LoopLag(lambda: now)
    watching = asyncio.create_task(lag.watch())
    await asyncio.sleep(0)
    assert lag.wait_s == 0.0
    now = 0.31
    assert lag.wait_s > LOOP_PASSES * 0.29  # nobody has woken it yet
    await asyncio.sleep(0.05)  # woken late, and then a look later, at a time that stands still
    assert lag.wait_s == 0.0
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching


async def test_a_loop_that_answers_does_not_lag() -> None:
    lag = LoopLag(time.monotonic)
    assert lag.wait_s == 0.0
