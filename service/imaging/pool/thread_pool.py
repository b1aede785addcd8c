"""Thread pool for one kind of work on pictures, with one thread reserved for small pictures.

Large pictures take seconds each: while they occupy all other threads, small ones run on the reserved thread. It
comes in addition to one thread per core, so that a server that gets only large pictures still uses all cores for them.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import structlog

from service.core.errors import NotReady

T = TypeVar("T")
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Work:
    """A function to run on a thread, and the future of its result on an event loop."""

    function: Callable[..., Any]
    arguments: tuple[object, ...]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    ended: Callable[[], None] | None
    """Called on the loop when the function has ended, or was not begun because its future was cancelled."""
    then: Callable[[Any], Iterable[object]] | None = None
    """Called with the result on the same thread, once the loop has it, to continue with further steps; `ended`
    follows."""

    def answer(self, result: object, error: BaseException | None) -> None:
        """Pass the outcome to the loop, then run the steps of `then`; called on the thread."""
        if self.then is None or error is not None or self.future.cancelled():
            self._call_on_loop(self._set_result, result, error, self.ended)
            return
        self._call_on_loop(self._set_result, result, None, None)
        with suppress(Exception):
            deque(self.then(result), maxlen=0)
        if self.ended is not None:
            self._call_on_loop(self.ended)

    def _call_on_loop(self, function: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(function, *arguments)

    def _set_result(self, result: object, error: BaseException | None, ended: Callable[[], None] | None) -> None:
        if ended is not None:
            ended()
        if self.future.done():  # cancelled
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


def _outcome_of(function: Callable[..., Any], arguments: tuple[object, ...]) -> tuple[object, BaseException | None]:
    """Return a function's result, or its error."""
    try:
        return function(*arguments), None
    except BaseException as error:  # raised where the future is awaited
        return None, error


class _Threads:
    """Threads that run functions for event loops, started with the first one.

    `ThreadPoolExecutor` takes five times as long to hand over work under load: each result has a second future, with a
    lock and a condition.
    """

    def __init__(self, count: int, name: str) -> None:
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._count, self._name = count, name
        self._started: list[threading.Thread] = []
        self._closed = False

    @property
    def count(self) -> int:
        """The number of threads; fewer than requested if the system has refused to start some."""
        return len(self._started) or self._count

    def submit(
        self,
        function: Callable[..., T],
        arguments: tuple[object, ...],
        ended: Callable[[], None] | None = None,
        then: Callable[[T], Iterable[object]] | None = None,
    ) -> asyncio.Future[T]:
        """Run a function on a thread; cancelling the future withdraws it if no thread has begun.

        Raises:
            NotReady: the system starts no thread; the next call tries again.
        """
        if self._closed:
            raise RuntimeError("the threads are closed")
        if not self._started:
            self._started = self._start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put(_Work(function, arguments, loop, future, ended, then))
        return future

    def close(self) -> None:
        """Wait for running work; cancel queued work."""
        self._closed = True
        while (work := self._next_queued()) is not None:
            work.future.cancel()
            if work.ended is not None:
                work.ended()
        for _ in self._started:
            self._queue.put(None)
        for thread in self._started:
            thread.join()

    def _start(self) -> list[threading.Thread]:
        """Start threads until the system refuses one; those already started then do the work alone."""
        started: list[threading.Thread] = []
        for number in range(self._count):
            thread = threading.Thread(target=self._run, name=f"{self._name}_{number}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                if not started:
                    raise NotReady(f"the server cannot start a thread ({error}); raise its limit of threads") from error
                _log.warning(
                    "fewer threads than requested could be started",
                    pool=self._name,
                    wanted=self._count,
                    started=number,
                    reason=str(error),
                )
                break
            started.append(thread)
        return started

    def _next_queued(self) -> _Work | None:
        try:
            return self._queue.get_nowait()
        except Empty:
            return None

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            abandoned = work.future.cancelled()
            outcome = (None, None) if abandoned else _outcome_of(work.function, work.arguments)
            work.answer(*outcome)
            del work, outcome  # an error's traceback leads to this frame, which must not keep pictures in memory


class CodecPool:
    """Thread pool that runs functions for the event loop; its methods are called on the loop's thread.

    Args:
        threads: number of threads for pictures of any size.
        name: prefix of the threads' names.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._common = _Threads(threads, name)
        self._reserved = _Threads(1, f"{name}-small")
        self._large = 0
        """Number of large pictures that the common threads work on or get next."""
        self._waiting: deque[asyncio.Future[None]] = deque()
        """Large pictures beyond the number of threads; not in the pool's queue, where small ones would wait."""

    @property
    def threads_for_small(self) -> int:
        """The number of threads without a large picture; at least 1, the reserved thread."""
        return max(1, self._common.count - self._large)

    def run(
        self,
        function: Callable[..., T],
        *args: object,
        large: bool = False,
        then: Callable[[T], Iterable[object]] | None = None,
    ) -> Awaitable[T]:
        """Run a function on a thread. Cancelling the call withdraws work that no thread has begun.

        Args:
            function: the function to run.
            args: its arguments.
            large: whether it works on a large picture.
            then: called with the result on the same thread, which then runs the steps it returns; errors are ignored.

        Raises:
            NotReady: the system starts no thread.
        """
        if large:
            return self._run_large(function, args, then)
        pool = self._reserved if self._large >= self._common.count else self._common
        return pool.submit(function, args, then=then)

    def close(self) -> None:
        """Wait for running work; cancel queued work, and large pictures that wait for a thread."""
        while self._waiting:
            self._waiting.popleft().cancel()
        for pool in (self._common, self._reserved):
            pool.close()

    async def _run_large(
        self, function: Callable[..., T], arguments: tuple[object, ...], then: Callable[[T], Iterable[object]] | None
    ) -> T:
        await self._acquire_thread()
        try:
            submitted = self._common.submit(function, arguments, self._release_thread, then)
        except BaseException:  # no thread could be started, or the pool is closed
            self._release_thread()
            raise
        try:
            return await submitted  # the thread is released also if the caller leaves
        finally:
            del submitted  # breaks a reference cycle through its error's traceback

    async def _acquire_thread(self) -> None:
        if self._large < self._common.count:
            self._large += 1
            return
        free: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(free)
        try:
            await free
        except asyncio.CancelledError:
            if free.done() and not free.cancelled():  # a thread became free just before
                self._release_thread()
            raise

    def _release_thread(self) -> None:
        while self._waiting:
            free = self._waiting.popleft()
            if not free.done():
                free.set_result(None)
                return
        self._large -= 1
