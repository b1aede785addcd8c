"""A queue of received signals, for a process whose main loop waits for them."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterable
from types import TracebackType


class Signals:
    """Collects signals in place of their default actions, during the block. On the main thread only."""

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._numbers = tuple(numbers)

    def __enter__(self) -> Signals:
        self._incoming, self._outgoing = os.pipe()
        os.set_blocking(self._incoming, False)
        os.set_blocking(self._outgoing, False)
        self._usual = {number: signal.signal(number, lambda *_: None) for number in self._numbers}
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

    def wait(self, timeout_s: float) -> list[int]:
        """Wait for at least one signal and return the numbers of all since the last call; empty after the timeout."""
        if not select.select([self._incoming], [], [], timeout_s)[0]:
            return []
        return list(os.read(self._incoming, 512))
