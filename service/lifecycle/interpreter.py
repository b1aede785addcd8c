"""How the process's threads share Python's interpreter."""

from __future__ import annotations

import sys

SWITCH_S = 0.0005
"""CPython lets a thread that computes keep the interpreter for 5 ms while others ask for it. A batch asks a few times
on its way through the device worker: beside a busy event loop, a batch of 8 ms took 20 and more."""


def switch_often() -> None:
    """Let threads that wait for the interpreter have it ten times sooner; of the whole process."""
    sys.setswitchinterval(SWITCH_S)
