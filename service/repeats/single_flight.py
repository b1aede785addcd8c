"""Single flight: concurrent calls with the same key share a computation, cancelled when all callers are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_MIN_FINISH_S = 1.0
"""Seconds that suffice to finish the write of a result."""


@dataclass(slots=True)
class _SharedComputation(Generic[T]):
    task: asyncio.Task[T]
    waiting: int = 0


class SingleFlight(Generic[T]):
    """Computations in flight, by key. Used on the event loop."""

    def __init__(self) -> None:
        self._flights: dict[str, _SharedComputation[T]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._flights

    @property
    def waiting(self) -> int:
        """Number of waiting callers, over all keys."""
        return sum(flight.waiting for flight in self._flights.values())

    async def run_or_join(
        self, key: str, work: Callable[[], Coroutine[Any, Any, T]], left_s: Callable[[], float] = lambda: 0.0
    ) -> T:
        """Return the result of the computation in flight for the key; start `work` if there is none.

        The computation goes on if some callers are cancelled, even the one that started it. If all are, it is
        cancelled. It may still finish: the last caller waits for it, `left_s()` seconds or at least `_MIN_FINISH_S`. A
        caller that is cancelled when it has just finished gets its result.
        """
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _SharedComputation(asyncio.get_running_loop().create_task(work()))
            flight.task.add_done_callback(lambda task: self._remove_finished(key, task))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        except asyncio.CancelledError:
            if not flight.task.done():
                if flight.waiting > 1:
                    raise
                flight.task.cancel()
                self._flights.pop(key, None)  # the next caller starts anew
                await asyncio.wait({flight.task}, timeout=max(_MIN_FINISH_S, left_s()))
            if not flight.task.done() or flight.task.cancelled():
                raise
            return flight.task.result()
        finally:
            flight.waiting -= 1

    def _remove_finished(self, key: str, task: asyncio.Task[T]) -> None:
        flight = self._flights.get(key)
        if flight is not None and flight.task is task:
            del self._flights[key]
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it if all callers were cancelled
