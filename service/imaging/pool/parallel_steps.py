"""Pieces of one request's work that do not need each other: in turn, or on threads that have nothing to do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class SideBySide(Protocol):
    """Runs all pieces and returns what each gave, in their order; of several that raise, the first one's error."""

    def __call__(self, pieces: Sequence[Callable[[], T]]) -> list[T]: ...


def in_turn(pieces: Sequence[Callable[[], T]]) -> list[T]:
    """On the caller's thread."""
    return [piece() for piece in pieces]


class Helpers:
    """Threads that take pieces off a thread which works on them anyway.

    The caller works until no piece is left, and waits only for what a helper has begun: with no helper free it is as
    fast as alone, and nothing can wait for itself. When it goes on, with results or with an error, nothing runs any
    more.

    Args:
        threads: helpers at most.
        free: how many may help just now; asked on the caller's thread.
    """

    def __init__(self, threads: int, free: Callable[[], int]) -> None:
        self._pool = ThreadPoolExecutor(max(1, threads), "help")
        self._free = free

    def share(self, pieces: Sequence[Callable[[], T]]) -> list[T]:
        """Run the pieces on the caller's thread and on as many helpers as may help; a `SideBySide`."""
        helpers = self._free()
        if helpers < 1 or len(pieces) < 2:
            return in_turn(pieces)
        shared = _Shared(pieces)
        tasks = [self._pool.submit(shared.work) for _ in range(min(helpers, len(pieces) - 1))]
        shared.work()
        for task in tasks:
            if not task.cancel():  # it has begun
                task.result()
        return shared.take()

    def close(self) -> None:
        """Wait for what runs."""
        self._pool.shutdown()


class _Shared(Generic[T]):
    """Pieces that several threads take up, and what became of them."""

    def __init__(self, pieces: Sequence[Callable[[], T]]) -> None:
        self._count = len(pieces)
        self._waiting = deque(enumerate(pieces))
        self._results: dict[int, T] = {}
        self._errors: dict[int, BaseException] = {}

    def work(self) -> None:
        """Until no piece waits."""
        while self._waiting:
            try:
                number, piece = self._waiting.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                self._results[number] = piece()
            except BaseException as error:  # is the caller's
                self._errors[number] = error
                self._waiting.clear()  # all before it are begun, and nobody wants those behind it

    def take(self) -> list[T]:
        """What all gave, once, when all that was begun has ended; or the first error is raised."""
        try:
            if self._errors:
                raise self._errors.pop(min(self._errors))
            return [self._results.pop(number) for number in range(self._count)]
        finally:
            self._errors.clear()  # an error that led to itself would keep pictures until the garbage collector comes
