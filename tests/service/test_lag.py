"""How far the event loop is behind."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from service.lag import LoopLag


def test_a_long_lag_is_remembered_for_a_while_and_forgotten() -> None:
    lag = LoopLag(lambda: 0.0)
    lag.observe(0.4)
    lag.observe(0.0)
    assert 0.2 < lag.lag_s < 0.4
    for _ in range(20):
        lag.observe(0.0)
    assert lag.wait_s < 0.01


async def test_a_loop_that_is_blocked_is_seen_to_lag() -> None:
    lag = LoopLag(time.monotonic)
    watching = asyncio.create_task(lag.watch())
    await asyncio.sleep(0.05)
    time.sleep(0.3)  # noqa: ASYNC251 -- the loop is to be late
    while lag.lag_s < 0.1:  # noqa: ASYNC110 -- what it sees has no event
        await asyncio.sleep(0.005)
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
