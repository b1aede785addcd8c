"""The process's share of its host, and how it uses it: cores, Python's interpreter, freed memory."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import weakref
from contextlib import suppress
from pathlib import Path

SWITCH_S = 0.0005
"""CPython lets a thread that computes keep the interpreter for 5 ms while others wait for it. A batch needs it a few
times on its way through the device worker: beside a busy event loop, a batch of 8 ms took 20 ms and more."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""malloc.h; see mallopt(3)."""
_KEPT_BYTES = 128 << 20
"""Free memory at the end of the heap that glibc keeps."""
_MAPPED_FROM_BYTES = 32 << 20
"""The most that glibc allows on 64 bits; larger arrays are mapped, and go back to the system when they are freed."""


def usable_cores() -> int:
    """How many cores this process may run on, as `taskset` and a container's cpuset say; elsewhere, how many exist."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cores_of_container(cgroup: Path = Path("/sys/fs/cgroup/cpu.max")) -> float:
    """How many cores this process may use at a time: `usable_cores`, or less by its container's quota (cgroup v2)."""
    try:
        quota, period = cgroup.read_text().split()
        allowed = int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # no cgroup of version 2, or "max": no quota
        return float(usable_cores())
    return min(allowed, float(usable_cores()))


class IdleCores:
    """The cores of the host on which nothing runs, other programs included, as Linux counts them; read in 2 µs."""

    def __init__(self, loadavg: Path = Path("/proc/loadavg"), cores: int | None = None) -> None:
        self._cores = cores or os.cpu_count() or 1
        self._descriptor: int | None = None
        with suppress(OSError):  # another system
            self._descriptor = os.open(loadavg, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._descriptor)

    def count(self) -> int:
        """Return how many cores are idle, without the caller's; all cores where the system does not tell."""
        if self._descriptor is None:
            return self._cores
        try:  # 8.65 9.82 7.16 RUNNING/ALL 21821
            running = int(os.pread(self._descriptor, 128, 0).split()[3].partition(b"/")[0])
        except (OSError, ValueError, IndexError):
            return self._cores
        return max(0, self._cores - running)


def shorten_switch_interval() -> None:
    """Let threads that wait for the interpreter have it ten times sooner; holds for the whole process."""
    sys.setswitchinterval(SWITCH_S)


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory for the next picture, in the whole process. It may be called twice.

    Every fresh page costs a fault, 200 for each array of a 512² picture: half the time of pasting.

    Returns:
        False where the C library is not glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES) and mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES))
