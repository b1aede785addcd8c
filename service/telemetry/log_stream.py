"""Standard error as a stream of log lines that a stalled reader does not block.

Ctrl-S in a terminal, a lost SSH session or a stopped pager would otherwise block every write, and with it the event
loop. So the stream waits for a stalled reader once, at most `_WRITE_TIMEOUT_S`, and then drops lines until it reads
again.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import time
import weakref
from threading import RLock
from typing import TextIO

import structlog

_log = structlog.get_logger(__name__)

_WRITE_TIMEOUT_S = 1.0


class LogStream:
    """A stream of lines to a file; lines that it does not accept (closed terminal, full disk) are dropped.

    A pipe or terminal is opened once more if the system allows it (Linux), because O_NONBLOCK on the inherited
    descriptor would apply to all programs that share it.

    Args:
        file: standard error.
        write_timeout_s: longest time in seconds that a write waits for a reader that was not stalled before.
    """

    def __init__(self, file: TextIO, write_timeout_s: float = _WRITE_TIMEOUT_S) -> None:
        self._file = file
        self._write_timeout_s = write_timeout_s
        self._lock = RLock()  # a signal's handler may log while its thread writes
        self._rest = b""  # the unwritten part of the last line
        self._stalled = False
        self._lost = 0
        self._descriptor = _reopened(file)
        if self._descriptor is not None:
            weakref.finalize(self, os.close, self._descriptor).atexit = False  # other threads log to the end

    def write(self, text: str) -> None:
        """Write a line, which must end with a newline. Thread-safe; never raises OSError."""
        try:
            if self._descriptor is None:
                self._file.write(text)
                self._file.flush()
            else:
                self._write_or_drop(self._descriptor, text.encode("utf-8", "backslashreplace"))
        except OSError:
            return

    def _write_or_drop(self, descriptor: int, line: bytes) -> None:
        with self._lock:
            if not self._write_rest(descriptor):
                self._lost += 1
                return
            self._rest = line
            complete = self._write_rest(descriptor)
            lost, self._lost = (self._lost, 0) if complete else (0, self._lost)
        if lost:
            _log.warning("log lines were dropped, because standard error was not read", lines=lost)

    def _write_rest(self, descriptor: int) -> bool:
        """Write the rest of the last line; returns whether all of it was accepted."""
        end = time.monotonic() + (0 if self._stalled else self._write_timeout_s)
        while self._rest:
            accepted = _write_some(descriptor, self._rest)
            self._rest = self._rest[accepted:]
            wait_s = end - time.monotonic()
            if not accepted and wait_s <= 0:
                self._stalled = True
                return False
            if not accepted:
                _wait_for_room(descriptor, wait_s)
        self._stalled = False
        return True


def _write_some(descriptor: int, data: bytes) -> int:
    """Write as many bytes as are accepted without blocking; returns their number."""
    try:
        return os.write(descriptor, data)
    except BlockingIOError:
        return 0


def _wait_for_room(descriptor: int, seconds: float) -> None:
    room = select.poll()
    room.register(descriptor, select.POLLOUT)
    room.poll(seconds * 1e3)


def _reopened(file: TextIO) -> int | None:
    """Open a pipe or terminal again for non-blocking writes; None for other files, or if that is not possible."""
    if sys.platform != "linux":
        return None
    try:
        descriptor = file.fileno()
        if not (stat.S_ISFIFO(os.fstat(descriptor).st_mode) or os.isatty(descriptor)):
            return None
        return os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:  # also raised for a file without a descriptor
        return None
