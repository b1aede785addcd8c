"""Thread pool for one kind of work on pictures, with one thread reserved for small pictures.

Large pictures take seconds each: while they occupy all other threads, small ones run on the reserved thread. It
comes in addition to one thread per core, so that a server that gets only large pictures still uses all cores for them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

T = TypeVar("T")


class CodecPool:
    """Thread pool that runs functions for the event loop; its methods are called on the loop's thread.

    Args:
        threads: number of threads for pictures of any size.
        name: prefix of the threads' names.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._threads = threads
        self._common = ThreadPoolExecutor(threads, name)
        self._kept = ThreadPoolExecutor(1, f"{name}-small")
        self._large = 0
        """Number of large pictures that the common threads work on or get next."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Large pictures beyond the number of threads, kept out of the pool's queue so that no small one waits."""

    @property
    def threads_for_small(self) -> int:
        """The number of threads without a large picture; at least 1, the reserved thread."""
        return max(1, self._threads - self._large)

    def run(self, function: Callable[..., T], *args: object, large: bool = False) -> Awaitable[T]:
        """Run a function on a thread. Cancelling the call withdraws work that no thread has begun."""
        if large:
            return self._run_large(function, *args)
        pool = self._kept if self._large >= self._threads else self._common
        return asyncio.get_running_loop().run_in_executor(pool, function, *args)

    def close(self) -> None:
        """Wait for running work; drop queued work."""
        for pool in (self._common, self._kept):
            pool.shutdown(cancel_futures=True)

    async def _run_large(self, function: Callable[..., T], *args: object) -> T:
        await self._acquire_thread()
        work: Future[T] = self._common.submit(function, *args)
        work.add_done_callback(partial(self._release_when_ended, asyncio.get_running_loop()))
        return await asyncio.wrap_future(work)

    async def _acquire_thread(self) -> None:
        if self._large < self._threads:
            self._large += 1
            return
        free: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(free)
        try:
            await free
        except asyncio.CancelledError:
            if free.done() and not free.cancelled():  # a thread became free at the same moment
                self._release_thread()
            raise

    def _release_when_ended(self, loop: asyncio.AbstractEventLoop, _: Future[T]) -> None:
        """Release the thread once its work has ended, which may be after its caller was cancelled."""
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._release_thread)

    def _release_thread(self) -> None:
        while self._waiting:
            free = self._waiting.popleft()
            if not free.done():
                free.set_result(None)
                return
        self._large -= 1
