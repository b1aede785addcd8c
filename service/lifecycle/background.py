"""Background tasks that run as long as the server, and blocking calls on threads that can be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

import structlog

T = TypeVar("T")
_log = structlog.get_logger(__name__)


async def cancel_and_wait(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it has ended; an error that it raised is raised here."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def run_to_completion_on_thread(call: Callable[[], T]) -> T:
    """Run a function on a thread; a cancellation is raised only when it has ended, so that it changes nothing later."""
    task = asyncio.create_task(asyncio.to_thread(call))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        with suppress(Exception):
            task.result()
        raise


async def enter_on_thread(stack: ExitStack, manager: AbstractContextManager[T]) -> T:
    """Enter a context manager, which blocks, on a thread; the stack exits it.

    If the call is cancelled, it is exited on the event loop once it was entered.
    """
    entering = asyncio.create_task(asyncio.to_thread(manager.__enter__))
    try:
        entered = await asyncio.shield(entering)
    except asyncio.CancelledError:
        entering.add_done_callback(partial(_exit_if_entered, manager))
        raise
    finally:
        del entering  # breaks a cycle: task, error, traceback, this frame
    stack.push(manager)
    return entered


def _exit_if_entered(manager: AbstractContextManager[Any], entering: asyncio.Task[Any]) -> None:
    if not entering.cancelled() and entering.exception() is None:
        manager.__exit__(None, None, None)


async def wait_for_any(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    waits = [asyncio.create_task(_wait_until_set(event)) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            await cancel_and_wait(wait)


async def _wait_until_set(event: asyncio.Event) -> None:
    await event.wait()


@asynccontextmanager
async def run_in_background(*loops: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run coroutines during the block and cancel them at its end; if one fails, that is logged and others continue."""
    tasks = [asyncio.create_task(_log_failure(loop)) for loop in loops]
    try:
        yield
    finally:
        for task in tasks:
            await cancel_and_wait(task)


async def _log_failure(loop: Coroutine[Any, Any, None]) -> None:
    try:
        await loop
    except Exception:  # nothing awaits the task before the end, so it must be logged here
        _log.exception(
            "background task failed and will not be restarted", work=getattr(loop, "__qualname__", repr(loop))
        )
