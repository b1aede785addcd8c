"""Blocking calls in threads of their own, which delay neither other work nor the end of the process.

The event loop's default executor has few threads, and the process waits for them when it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TypeVar

T = TypeVar("T")


class NoThread(OSError):
    """The process has as many threads as it may have; raised from the `RuntimeError` of the one that did not start."""

    def __init__(self, error: RuntimeError) -> None:
        super().__init__(f"the process cannot start a thread ({error}); raise its limit of threads")


async def call_in_daemon_thread(function: Callable[[], T], name: str) -> T:
    """Call a function in a daemon thread called `name`; if the caller is cancelled, the thread runs on.

    Raises:
        NoThread: none can be started; the function was not called.
        Exception: whatever the function raises.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(conclude: Callable[[], None]) -> None:
        if not outcome.done():  # the caller was cancelled
            conclude()

    def work() -> None:
        try:
            conclude = partial(outcome.set_result, function())
        except Exception as error:  # raised where the outcome is awaited
            conclude = partial(outcome.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, conclude)

    try:
        Thread(target=work, name=name, daemon=True).start()
    except RuntimeError as error:
        raise NoThread(error) from error
    return await outcome
