"""Cancellation of work whose deadline has passed or whose client has disconnected."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from typing import TypeVar

from service.core.errors import Cancelled, DeadlineExceeded

T = TypeVar("T")


async def await_with_deadline(
    work: Awaitable[T], timeout_s: float, disconnected: asyncio.Future[None] | None = None
) -> T:
    """Await `work` in the caller's task, and cancel it at the deadline or when the client disconnects.

    Args:
        work: awaitable with the result.
        timeout_s: seconds until the deadline.
        disconnected: a future that is done when the client has disconnected; several calls may share it.

    Raises:
        DeadlineExceeded: the deadline came first.
        Cancelled: the client disconnected first.
    """
    canceller = _TaskCanceller()
    timer = asyncio.get_running_loop().call_later(max(0.0, timeout_s), canceller.cancel_at_deadline)
    if disconnected is not None:
        disconnected.add_done_callback(canceller.cancel_on_disconnect)
    try:
        return await work
    except asyncio.CancelledError:
        if canceller.reason is None or canceller.is_cancelled_by_others():
            raise
        raise canceller.reason from None
    finally:
        timer.cancel()
        if disconnected is not None:
            disconnected.remove_done_callback(canceller.cancel_on_disconnect)
        canceller.uncancel()  # also after work that finished despite its cancellation
        del canceller  # breaks a reference cycle through the error's traceback that would keep the pictures in memory


class _TaskCanceller:
    """Cancels the current task, at most once, and records the reason."""

    def __init__(self) -> None:
        self.reason: DeadlineExceeded | Cancelled | None = None
        self._task = asyncio.current_task()

    def cancel_at_deadline(self) -> None:
        self._cancel_with_reason(DeadlineExceeded("the deadline passed before the answer was ready; allow more time"))

    def cancel_on_disconnect(self, _: asyncio.Future[None]) -> None:
        self._cancel_with_reason(Cancelled("the client disconnected"))

    def is_cancelled_by_others(self) -> bool:
        """Whether the task was also cancelled from elsewhere; Python counts cancellations from 3.11 on."""
        if sys.version_info >= (3, 11):
            return self._task is not None and self._task.cancelling() > 1
        return False

    def uncancel(self) -> None:
        """Take its cancellation, if there was one, from the task's count, so that a later one is not taken for two."""
        if sys.version_info >= (3, 11) and self.reason is not None and self._task is not None:
            self._task.uncancel()

    def _cancel_with_reason(self, reason: DeadlineExceeded | Cancelled) -> None:
        if self.reason is None and self._task is not None:
            self.reason = reason
            self._task.cancel()
