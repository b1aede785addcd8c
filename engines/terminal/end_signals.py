"""SIGTERM and SIGHUP for commands that have temporary files or child processes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator
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


@contextmanager
def ending_within(seconds: float, before: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as `ending_in_order`, or else the process, after so many seconds.

    Python handles signals in the main thread, after the call of a library that this is in, which may take minutes.
    A process that is ended meanwhile calls `before` and leaves its temporary files, as if it were killed. A library
    that holds the interpreter's lock is waited for.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handled = {number for number in _END_SIGNALS if signal.getsignal(number) is signal.SIG_DFL}
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    ended = threading.Event()
    watching = threading.Thread(target=_end_late, args=(reading, handled, ended, seconds, before), daemon=True)
    watching.start()
    earlier = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        with ending_in_order():
            yield
    finally:
        ended.set()
        signal.set_wakeup_fd(earlier)
        os.close(writing)
        watching.join()
        os.close(reading)


def _end_late(
    reading: int, handled: Collection[int], ended: threading.Event, seconds: float, before: Callable[[], None]
) -> None:
    """Read the numbers of the signals that arrive; the first that is handled ends the process, if nothing else does."""
    while received := os.read(reading, 1):
        if received[0] in handled:
            if not ended.wait(seconds):
                try:
                    before()
                finally:  # also where what it prints has nowhere to go any more
                    os._exit(128 + received[0])
            return


def _exit(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
