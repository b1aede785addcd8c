"""Handling of SIGHUP: it drains as SIGTERM does, but a second signal does not cut the drain short.

When a terminal closes, the shell and the kernel both send SIGHUP, and systemd can send it right after SIGTERM, so a
second SIGHUP is not a second request to end.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None]


def hangup_signals() -> frozenset[signal.Signals]:
    """SIGHUP; empty if it is ignored, as under nohup, or does not exist (Windows)."""
    if sys.platform == "win32" or signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return frozenset()
    return frozenset({signal.SIGHUP})


def is_hangup(number: int) -> bool:
    """Whether that signal is SIGHUP."""
    return sys.platform != "win32" and number == signal.SIGHUP


@contextmanager
def handling_hangups(handle: Handler) -> Generator[None, None, None]:
    """Call `handle` for each hangup, as long as the block lasts. On the main thread only."""
    usual = {number: signal.signal(number, handle) for number in hangup_signals()}
    try:
        yield
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
