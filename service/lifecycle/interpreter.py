"""Switch interval of Python's interpreter lock (GIL)."""

from __future__ import annotations

import sys

SWITCH_S = 0.0005
"""CPython's default is 5 ms for which a computing thread keeps the lock while others wait. The device worker needs the
lock several times for each batch: beside a busy event loop, a batch of 8 ms took 20 ms and more."""


def shorten_switch_interval() -> None:
    """Set a switch interval ten times shorter than the default, for the whole process."""
    sys.setswitchinterval(SWITCH_S)
