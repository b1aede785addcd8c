"""Waiting for an answer only as long as somebody wants it: until the deadline, or until the client hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from service.errors import Cancelled, DeadlineExceeded

T = TypeVar("T")


async def answer(work: Coroutine[Any, Any, T], timeout_s: float, gone: Coroutine[Any, Any, None] | None = None) -> T:
    """The result of `work`; it is cancelled, and with it whatever it queued, when nobody needs it any more.

    Args:
        work: what is being waited for.
        timeout_s: seconds until the deadline.
        gone: ends when the client has left.

    Raises:
        DeadlineExceeded: the deadline came first.
        Cancelled: the client left first.
    """
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(gone) if gone is not None else None
    watched: set[Awaitable[Any]] = {task, leaving} if leaving else {task}
    try:
        await asyncio.wait(watched, timeout=max(0.0, timeout_s), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        if leaving is not None and leaving.done():
            raise Cancelled("the client left")
        raise DeadlineExceeded("the deadline passed before the answer was ready; allow more")
    finally:
        await _stop(task)
        if leaving is not None:
            await _stop(leaving)


async def until_gone(receive: Receive) -> None:
    """Return when the client has hung up. For requests whose body has been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _stop(task: asyncio.Future[Any]) -> None:
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    elif not task.cancelled():
        task.exception()  # seen here, so that asyncio does not report it as never retrieved
