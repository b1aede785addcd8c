"""How many files a server may have open: each connection needs one."""

from __future__ import annotations

import resource

_OPEN_FILES = 65_536


def raise_open_files_limit() -> None:
    """Lift the soft limit: 1,024, which is common, would end before the queue is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
