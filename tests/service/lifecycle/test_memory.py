"""Freed memory is used again without page faults."""

from __future__ import annotations

import platform
import resource
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from service.lifecycle.memory import keep_freed_memory

PAGES = (1 << 20) // resource.getpagesize()


def faults_of(rounds: int) -> int:
    """Page faults while arrays of 1 MiB come and go, three at a time."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        arrays = [np.ones(1 << 20, np.uint8) for _ in range(3)]
        del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_arrays_of_pictures_are_not_mapped_anew_each_time() -> None:
    assert keep_freed_memory()
    with ThreadPoolExecutor(1) as thread:
        thread.submit(faults_of, 5).result()
        assert thread.submit(faults_of, 50).result() < 50 * PAGES / 4
