"""A queue of received signals with the times of their arrival, for a process whose main loop waits for them."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType


class Signals:
    """Collects signals in place of their default actions, during the block. On the main thread only.

    Args:
        numbers: the signals to collect.
        clock: monotonic clock, in seconds.
    """

    def __init__(self, numbers: Iterable[signal.Signals], clock: Callable[[], float] = time.monotonic) -> None:
        self._numbers, self._clock = tuple(numbers), clock
        self._arrived: list[tuple[int, float]] = []

    def __enter__(self) -> Signals:
        self._incoming, self._outgoing = os.pipe()
        os.set_blocking(self._incoming, False)
        os.set_blocking(self._outgoing, False)
        self._usual = {number: signal.signal(number, self._add) for number in self._numbers}
        self._before = signal.set_wakeup_fd(self._outgoing, warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._before)
        for number, usual in self._usual.items():
            signal.signal(number, usual)
        os.close(self._incoming)
        os.close(self._outgoing)

    def wait(self, timeout_s: float) -> list[tuple[int, float]]:
        """Wait for a signal; returns the number and time of each since the last call, none after the timeout."""
        if select.select([self._incoming], [], [], timeout_s)[0]:
            os.read(self._incoming, 512)
        arrived, self._arrived = self._arrived, []
        return arrived

    def _add(self, number: int, _frame: FrameType | None) -> None:
        """Note a signal when it arrives, as what handles another one may be blocked, for instance by a full log."""
        self._arrived.append((number, self._clock()))
