"""SIGTERM and SIGHUP for commands that have temporary files or child processes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_END_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block by SystemExit, as Ctrl-C does by KeyboardInterrupt: what it made is removed.

    The exit status is the shells' own, 128 + the signal's number. A signal that is ignored, as under nohup, or has a
    handler keeps that; so do all in other threads than the main one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    changed = [number for number in _END_SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in changed:
        signal.signal(number, _exit)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, signal.SIG_DFL)


def _exit(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
