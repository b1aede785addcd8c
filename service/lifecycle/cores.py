"""How many processor cores this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Those that it is allowed to run on, as `taskset` and a container's cpuset say; all of the machine elsewhere."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
