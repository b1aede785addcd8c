"""Sends the log to standard error while a command runs, so that it does not mix with the results."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def logs_on_stderr() -> Iterator[None]:
    """Send the log to standard error until the block ends."""
    import structlog  # noqa: PLC0415 (the command's help should not wait for it)

    before = structlog.get_config()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        yield
    finally:
        structlog.configure(**before)
