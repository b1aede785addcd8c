"""Runs a cell's process as the leader of a process group, which is ended as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)
_GRACE_S = 5.0
"""Seconds that the command has to end its processes in other sessions, such as torchrun's."""


def run_in_group(command: Sequence[str], limit_s: float | None) -> int:
    """Run a command and return its exit status; afterwards its process group is killed.

    Raises:
        subprocess.TimeoutExpired: the command exceeded `limit_s` seconds, and was killed with its process group.
        SystemExit, KeyboardInterrupt: a signal ended this process.
    """
    with (
        _signals_held() as deliver,
        subprocess.Popen(command, start_new_session=True) as process,  # noqa: S603 -- our own module
    ):
        try:
            deliver()
            return process.wait(limit_s)
        finally:
            if process.poll() is None:
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_GRACE_S)
            with suppress(ProcessLookupError):  # no process of the group is left
                os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def _signals_held() -> Iterator[Callable[[], None]]:
    """Hold back signals that end this process until the yielded function is called; then raise them as exceptions.

    By default they would end this process, but not the child's process group, which is in another session. If a signal
    were raised while the child starts, nothing would kill the child.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    changed = [number for number, handler in before.items() if handler in _DEFAULTS]  # nohup's SIGHUP stays ignored
    held: list[int] = []
    for number in changed:
        signal.signal(number, lambda received, _frame: held.append(received))

    def deliver() -> None:
        for number in changed:
            signal.signal(number, _exit)
        if held:
            _exit(held[0], None)

    try:
        yield deliver
    finally:
        for number in changed:
            signal.signal(number, before[number])


def _exit(number: int, _frame: FrameType | None) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)
