"""Functions that wait for a condition; the limit of a minute allows for a busy machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


def wait_until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Wait until the condition is true; AssertionError after `timeout_s`."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.005)


async def until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Wait until the condition is true while the event loop runs; AssertionError after `timeout_s`."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        await asyncio.sleep(0.005)


async def until_it_answers(question: Callable[[], Awaitable[object]], timeout_s: float = 60.0) -> None:
    """Wait until an awaited condition, such as a server's answer, is true; AssertionError after `timeout_s`."""
    end = time.monotonic() + timeout_s
    while not await question():
        assert time.monotonic() < end, "it did not come true in time"
        await asyncio.sleep(0.02)
