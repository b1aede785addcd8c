"""What every test runs with."""

from __future__ import annotations

import os

import pytest
import structlog


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`--numprocesses=auto`: one for each core that this process may use; more than eight wait for the longest file."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, cores)


@pytest.fixture(autouse=True)
def _plain_logs() -> None:
    """Log lines without Rich: its tracebacks print every local variable, which takes seconds.

    Set for each test anew: one that serves in this process configures the logs of those after it.
    """
    plain = [structlog.processors.add_log_level, structlog.processors.format_exc_info]
    structlog.configure(processors=[*plain, structlog.processors.KeyValueRenderer(key_order=["event"])])
