"""SIGHUP, from a terminal that closes or a service manager: it drains as SIGTERM does, and cuts no drain short.

A shell and the kernel both send one when a terminal closes, and systemd can send one right behind SIGTERM: a second one
is no second wish to end.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None]


def hangup_signals() -> frozenset[signal.Signals]:
    """SIGHUP; nothing where it has been switched off, as nohup does, or where there is none (Windows)."""
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
