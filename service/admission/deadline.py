"""Waiting for an answer only as long as somebody wants it: until the deadline, or until the client hangs up."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from typing import TypeVar

from service.core.errors import Cancelled, DeadlineExceeded

T = TypeVar("T")


async def answer(work: Awaitable[T], timeout_s: float, gone: asyncio.Future[None] | None = None) -> T:
    """The result of `work`, which runs in the caller's task; it is cancelled when nobody needs it any more.

    Args:
        work: what is being waited for.
        timeout_s: seconds until the deadline.
        gone: done once nobody waits; shared by all that wait for the same.

    Raises:
        DeadlineExceeded: the deadline came first.
        Cancelled: `gone` was done first.
    """
    watch = _Watch()
    timer = asyncio.get_running_loop().call_later(max(0.0, timeout_s), watch.expire)
    if gone is not None:
        gone.add_done_callback(watch.leave)
    try:
        return await work
    except asyncio.CancelledError:
        if watch.reason is None or watch.is_cancelled_by_others():
            raise
        raise watch.reason from None
    finally:
        timer.cancel()
        if gone is not None:
            gone.remove_done_callback(watch.leave)


class _Watch:
    """Cancels the current task, at most once, and remembers why."""

    def __init__(self) -> None:
        self.reason: DeadlineExceeded | Cancelled | None = None
        self._task = asyncio.current_task()

    def expire(self) -> None:
        self._stop(DeadlineExceeded("the deadline passed before the answer was ready; allow more"))

    def leave(self, _: asyncio.Future[None]) -> None:
        self._stop(Cancelled("the client left"))

    def is_cancelled_by_others(self) -> bool:
        """Whether somebody else wants the task to end, too; from Python 3.11 on tasks count that."""
        if sys.version_info >= (3, 11):
            return self._task is not None and self._task.uncancel() > 0
        return False

    def _stop(self, reason: DeadlineExceeded | Cancelled) -> None:
        if self.reason is None and self._task is not None:
            self.reason = reason
            self._task.cancel()
