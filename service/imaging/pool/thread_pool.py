"""Threads for one kind of work on pictures, with a thread that is kept for small ones.

Large pictures take seconds each: where all threads work on such, small ones go to a thread of their own. It is one more
than there are cores, which the system divides then, so that a server of large pictures alone loses none.
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
    """Used on the event loop.

    Args:
        threads: for pictures of any size.
        name: of the threads.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._threads = threads
        self._common = ThreadPoolExecutor(threads, name)
        self._kept = ThreadPoolExecutor(1, f"{name}-small")
        self._large = 0
        """Large ones that the common threads have, or get next."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Large ones beyond as many as there are threads: none of them is before a small one."""

    @property
    def for_small(self) -> int:
        """Threads that work on no large picture, at least the one that is kept."""
        return max(1, self._threads - self._large)

    def run(self, function: Callable[..., T], *args: object, large: bool = False) -> Awaitable[T]:
        """Do it on a thread. A caller that leaves withdraws work that no thread has taken up."""
        if large:
            return self._run_large(function, *args)
        pool = self._kept if self._large >= self._threads else self._common
        return asyncio.get_running_loop().run_in_executor(pool, function, *args)

    def close(self) -> None:
        """Wait for what runs."""
        for pool in (self._common, self._kept):
            pool.shutdown(cancel_futures=True)

    async def _run_large(self, function: Callable[..., T], *args: object) -> T:
        await self._place()
        work: Future[T] = self._common.submit(function, *args)
        work.add_done_callback(partial(self._ended, asyncio.get_running_loop()))
        return await asyncio.wrap_future(work)

    async def _place(self) -> None:
        if self._large < self._threads:
            self._large += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it came in the same moment
                self._give_place()
            raise

    def _ended(self, loop: asyncio.AbstractEventLoop, _: Future[T]) -> None:
        """The thread is free, which it is not as soon as its caller has left."""
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._give_place)

    def _give_place(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._large -= 1
