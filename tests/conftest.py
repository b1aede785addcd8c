"""What every test runs with."""

from __future__ import annotations

import pytest
import structlog


@pytest.fixture(autouse=True, scope="session")
def _plain_logs() -> None:
    """Log lines without Rich: its tracebacks print every local variable, which takes seconds."""
    plain = [structlog.processors.add_log_level, structlog.processors.format_exc_info]
    structlog.configure(processors=[*plain, structlog.processors.KeyValueRenderer(key_order=["event"])])
