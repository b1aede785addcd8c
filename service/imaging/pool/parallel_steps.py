"""Independent steps of one request: one after the other, in parallel on idle threads, or later."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class StepRunner(Protocol):
    """Runs all steps and returns their results in order; if several raise, raises the first one's error."""

    def __call__(self, pieces: Sequence[Callable[[], T]]) -> list[T]: ...


def run_sequentially(pieces: Sequence[Callable[[], T]]) -> list[T]:
    """Run the steps one after the other on the caller's thread."""
    return [piece() for piece in pieces]


class DeferredStep(Generic[T]):
    """A step whose result is needed later: it runs once, when it is first called, and other callers wait for it."""

    def __init__(self, step: Callable[[], T]) -> None:
        self._step, self._running = step, threading.Lock()
        self._results: list[T] = []

    @property
    def done(self) -> bool:
        """Whether the step has run and has a result."""
        return bool(self._results)

    def __call__(self) -> T:
        """Return the result; a step that has raised runs again."""
        with self._running:
            if not self._results:
                self._results.append(self._step())
            return self._results[0]


def results_of(steps: Sequence[DeferredStep[T]], run_steps: StepRunner) -> list[T]:
    """Run the steps that are not done, and return the results of all in order."""
    run_steps([step for step in steps if not step.done])
    return [step() for step in steps]


class HelperThreads:
    """Threads that help a caller with its steps, started when they are first needed.

    The caller works until no step is left, and waits only for steps that a helper has begun: with no helper free it is
    as fast as alone, and a deadlock is impossible. When it returns or raises, none of its steps is running. Handing
    steps over takes half as long as with `ThreadPoolExecutor`, which makes a future with a condition for each helper.

    Args:
        threads: the maximum number of helpers.
        free: returns how many threads may help now; called on the caller's thread.
    """

    def __init__(self, threads: int, free: Callable[[], int]) -> None:
        self._max_threads, self._free = threads, free
        self._queue: SimpleQueue[_SharedSteps[Any] | None] = SimpleQueue()
        self._starting = threading.Lock()
        self._started: list[threading.Thread] = []

    def run_with_helpers(self, pieces: Sequence[Callable[[], T]]) -> list[T]:
        """Run the steps on the caller's thread and on the free helpers; implements `StepRunner`."""
        if len(pieces) < 2 or (helpers := self._start(min(self._free(), self._max_threads, len(pieces) - 1))) < 1:
            return run_sequentially(pieces)
        shared = _SharedSteps(pieces)
        for _ in range(helpers):
            self._queue.put(shared)
        return shared.run_and_take_results()

    def close(self) -> None:
        """Wait for running work."""
        for _ in self._started:
            self._queue.put(None)
        for thread in self._started:
            thread.join()

    def _start(self, helpers: int) -> int:
        """Start threads up to this number of helpers; returns how many there are, fewer if the system refuses."""
        if len(self._started) < helpers:
            with self._starting, suppress(RuntimeError):
                while len(self._started) < helpers:
                    thread = threading.Thread(target=self._help, name=f"help_{len(self._started)}", daemon=True)
                    thread.start()
                    self._started.append(thread)
        return min(helpers, len(self._started))

    def _help(self) -> None:
        while (shared := self._queue.get()) is not None:
            shared.help()
            del shared  # or it would keep pictures in memory until the next work


class _SharedSteps(Generic[T]):
    """Steps that several threads work on, and their results and errors."""

    def __init__(self, pieces: Sequence[Callable[[], T]]) -> None:
        self._count = len(pieces)
        self._waiting = deque(enumerate(pieces))
        self._helped: SimpleQueue[None] = SimpleQueue()
        """An entry for each step that a helper has taken and ended."""
        self._results: dict[int, T] = {}
        self._errors: dict[int, BaseException] = {}

    def help(self) -> None:
        """Run steps on a helper until none is left."""
        while self._run_next():
            self._helped.put(None)

    def run_and_take_results(self) -> list[T]:
        """Run steps on the caller's thread, wait for the helpers', and return all results; called once.

        Raises:
            BaseException: the error of the first step that has failed.
        """
        own = 0
        while self._run_next():
            own += 1
        for _ in range(self._count - own):
            self._helped.get()
        try:
            if self._errors:
                raise self._errors.pop(min(self._errors))
            return [self._results.pop(number) for number in range(self._count)]
        finally:
            self._errors.clear()  # a reference cycle through the error would keep pictures in memory

    def _run_next(self) -> bool:
        """Take the next step and run it, or drop it if one has failed; returns False if none is left."""
        try:
            number, piece = self._waiting.popleft()
        except IndexError:
            return False
        if self._errors:  # all earlier steps have begun, and later results are not needed
            return True
        try:
            self._results[number] = piece()
        except BaseException as error:  # raised on the caller's thread
            self._errors[number] = error
        return True
