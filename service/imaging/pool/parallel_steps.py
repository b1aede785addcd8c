"""Independent steps of one request: one after the other, or in parallel on idle threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")


class StepRunner(Protocol):
    """Runs all steps and returns their results in order; if several raise, raises the first one's error."""

    def __call__(self, pieces: Sequence[Callable[[], T]]) -> list[T]: ...


def run_one_by_one(pieces: Sequence[Callable[[], T]]) -> list[T]:
    """Run the steps one after the other on the caller's thread."""
    return [piece() for piece in pieces]


class HelperThreads:
    """Threads that help a caller with its steps.

    The caller works until no step is left, and waits only for steps that a helper has begun: with no helper free it is
    as fast as alone, and a deadlock is impossible. When it returns or raises, none of its steps is running.

    Args:
        threads: the maximum number of helpers.
        free: returns how many threads may help now; called on the caller's thread.
    """

    def __init__(self, threads: int, free: Callable[[], int]) -> None:
        self._pool = ThreadPoolExecutor(max(1, threads), "help")
        self._free = free

    def run_with_helpers(self, pieces: Sequence[Callable[[], T]]) -> list[T]:
        """Run the steps on the caller's thread and on the free helpers; implements `StepRunner`."""
        helpers = self._free()
        if helpers < 1 or len(pieces) < 2:
            return run_one_by_one(pieces)
        shared = _SharedSteps(pieces)
        tasks = [self._pool.submit(shared.run_steps) for _ in range(min(helpers, len(pieces) - 1))]
        shared.run_steps()
        for task in tasks:
            if not task.cancel():  # a running task cannot be cancelled
                task.result()
        return shared.take_results()

    def close(self) -> None:
        """Wait for running work."""
        self._pool.shutdown()


class _SharedSteps(Generic[T]):
    """Steps that several threads work on, and their results and errors."""

    def __init__(self, pieces: Sequence[Callable[[], T]]) -> None:
        self._count = len(pieces)
        self._waiting = deque(enumerate(pieces))
        self._results: dict[int, T] = {}
        self._errors: dict[int, BaseException] = {}

    def run_steps(self) -> None:
        """Run steps until none is left."""
        while self._waiting:
            try:
                number, piece = self._waiting.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                self._results[number] = piece()
            except BaseException as error:  # raised on the caller's thread by `take_results`
                self._errors[number] = error
                self._waiting.clear()  # all earlier steps have begun, and later results are not needed

    def take_results(self) -> list[T]:
        """Return all results, or raise the first error; called once, when all begun steps have ended."""
        try:
            if self._errors:
                raise self._errors.pop(min(self._errors))
            return [self._results.pop(number) for number in range(self._count)]
        finally:
            self._errors.clear()  # a reference cycle through the error would keep pictures in memory
