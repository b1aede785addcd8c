"""The number of CPU cores that this process may use."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Number of cores in the process's CPU affinity (`taskset`, a container's cpuset); all cores if it is unknown."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
