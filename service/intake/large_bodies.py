"""The limit from which the bodies of requests and responses are read and written on a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
_LARGE_BYTES = 1 << 20
"""Base64 of so many bytes keeps the event loop for 2 to 5 ms."""


async def off_loop(nbytes: int, work: Callable[[], T]) -> T:
    """Run work on `nbytes` bytes: on a thread if they are many, so that the event loop is not blocked."""
    return await asyncio.to_thread(work) if nbytes > _LARGE_BYTES else work()
