"""Runs a cell's process as the leader of a group of its own, which ends as one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType


def run_in_group(command: Sequence[str], limit_s: float | None) -> int:
    """Run a command and return its exit status; whatever it has started ends with it.

    Raises:
        subprocess.TimeoutExpired: it was not done in time, and was killed with all that it had started.
    """
    with (
        _exit_on_signals(),
        subprocess.Popen(command, start_new_session=True) as process,  # noqa: S603 -- our own module
    ):
        try:
            return process.wait(limit_s)
        finally:
            with suppress(ProcessLookupError):  # nothing is left of it
                os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Make signals that would end this process at once raise SystemExit: they do not reach another session's group."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    mended = [number for number, handler in before.items() if handler is signal.SIG_DFL]  # nohup's SIGHUP is ignored
    for number in mended:
        signal.signal(number, _exit)
    try:
        yield
    finally:
        for number in mended:
            signal.signal(number, signal.SIG_DFL)


def _exit(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)
