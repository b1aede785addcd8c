"""Handling of SIGHUP: it begins a drain as SIGTERM does, but a second SIGHUP does not cut the drain short.

When a terminal closes, both the shell and the kernel send SIGHUP, and systemd can send it right after SIGTERM.
Therefore SIGHUP never counts as a second request to end.
"""

from __future__ import annotations

import signal
import sys


def hangup_signals() -> frozenset[signal.Signals]:
    """Return SIGHUP, in a set that is empty if the signal is ignored, as under nohup, or does not exist (Windows)."""
    if sys.platform == "win32" or signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return frozenset()
    return frozenset({signal.SIGHUP})


def is_hangup(number: int) -> bool:
    """Return whether a signal number is SIGHUP."""
    return sys.platform != "win32" and number == signal.SIGHUP
