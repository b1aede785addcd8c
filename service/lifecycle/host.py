"""The host's resources and this process's use of them: cores, the interpreter's switch interval, freed memory."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import weakref
from contextlib import suppress
from pathlib import Path

SWITCH_S = 0.0005
"""Interpreter switch interval in seconds. By default CPython lets a computing thread keep the GIL for 5 ms while others
wait. A batch needs the GIL a few times in the device worker: beside a busy event loop, a batch of 8 ms took 20 ms and
more."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Options from glibc's malloc.h; see mallopt(3)."""
_KEPT_BYTES = 128 << 20
"""Free memory that glibc keeps at the top of the heap."""
_MAPPED_FROM_BYTES = 32 << 20
"""glibc's maximum on 64 bits; larger arrays are mapped, and returned to the system when freed."""


def usable_cores() -> int:
    """Return how many cores this process may run on (`taskset`, cpuset); all cores on systems that cannot tell."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cores_of_container(cgroup: Path = Path("/sys/fs/cgroup/cpu.max")) -> float:
    """Return how many cores this process may use at a time: `usable_cores`, or its container's quota (cgroup v2)."""
    try:
        quota, period = cgroup.read_text().split()
        allowed = int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):  # no cgroup of version 2, or "max": no quota
        return float(usable_cores())
    return min(allowed, float(usable_cores()))


class IdleCores:
    """Counter of the host's idle cores, on which no program runs, from Linux's /proc/loadavg; a reading takes 2 µs."""

    def __init__(self, loadavg: Path = Path("/proc/loadavg"), cores: int | None = None) -> None:
        self._cores = cores or os.cpu_count() or 1
        self._descriptor: int | None = None
        with suppress(OSError):  # another system
            self._descriptor = os.open(loadavg, os.O_RDONLY | os.O_CLOEXEC)
            weakref.finalize(self, os.close, self._descriptor)

    def count(self) -> int:
        """Return how many cores are idle, not counting the caller's; the number of all cores if this is unknown."""
        if self._descriptor is None:
            return self._cores
        try:  # 8.65 9.82 7.16 RUNNING/ALL 21821
            running = int(os.pread(self._descriptor, 128, 0).split()[3].partition(b"/")[0])
        except (OSError, ValueError, IndexError):
            return self._cores
        return max(0, self._cores - running)


def shorten_switch_interval() -> None:
    """Make threads wait at most a tenth of Python's default for the GIL; applies to the whole process."""
    sys.setswitchinterval(SWITCH_S)


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory for the next picture, in the whole process. May be called twice.

    Each fresh page costs a page fault. An array of a 512² picture has 200 of them, which is half the time of pasting.

    Returns:
        False if the C library is not glibc, or refused the options.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES) and mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES))
