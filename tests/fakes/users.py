"""Acting as another user, for tests that root runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


@contextmanager
def acting_as(user: int, group: int, groups: Sequence[int] = ()) -> Iterator[None]:
    """Act as another user with these supplementary groups until the block ends."""
    before = os.getgroups()
    os.setgroups(groups)
    os.setegid(group)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(os.getgid())
        os.setgroups(before)
