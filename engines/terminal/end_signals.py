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
    """Let SIGTERM and SIGHUP end the block with SystemExit, so that its cleanup runs, as after Ctrl-C.

    The exit status is 128 plus the signal's number, as in shells. A signal that is ignored, as under nohup, or already
    has a handler is left alone. Outside the main thread nothing changes.
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
    """Let SIGTERM and SIGHUP end the block as in `ending_in_order`; end the process if that takes over `seconds`.

    Python handles a signal only when the main thread returns from a library's call, which may take minutes. To end the
    process, `before` is called and temporary files are left, as after a kill. While a library holds the interpreter's
    lock, the process cannot be ended this way.
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
    """Wait for a signal in `handled`; then end the process with its status, unless the block ends in time."""
    while received := os.read(reading, 1):
        if received[0] in handled:
            if not ended.wait(seconds):
                try:
                    before()
                finally:  # even if `before` raises, for instance because it prints to a closed terminal
                    os._exit(128 + received[0])
            return


def _exit(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
