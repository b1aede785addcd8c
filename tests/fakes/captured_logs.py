"""Capture of log lines, also those of a server's threads.

structlog's own capture changes the list of processors while other threads may be in the middle of it: their lines then
leave it unrendered, which raises TypeError in the code that logs, and a server closes that connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from structlog.testing import LogCapture
from structlog.typing import EventDict


@contextmanager
def capture_logs() -> Iterator[list[EventDict]]:
    """Collect the lines that are logged in the block, from all threads; lines that are being written are finished."""
    before, capture = structlog.get_config()["processors"], LogCapture()
    structlog.configure(processors=[capture])
    try:
        yield capture.entries
    finally:
        structlog.configure(processors=before)
