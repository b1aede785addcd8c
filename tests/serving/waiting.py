"""What a test waits for comes sooner or later: a minute is for a machine that is busy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


def wait_until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """Wait until it is true; AssertionError if it does not come true in time."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        time.sleep(0.005)


async def until(condition: Callable[[], object], timeout_s: float = 60.0) -> None:
    """The same while the event loop goes on."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "it did not come true in time"
        await asyncio.sleep(0.005)


async def until_it_answers(question: Callable[[], Awaitable[object]], timeout_s: float = 60.0) -> None:
    """The same of a condition that has to be asked for, a server's answer say."""
    end = time.monotonic() + timeout_s
    while not await question():
        assert time.monotonic() < end, "it did not come true in time"
        await asyncio.sleep(0.02)
