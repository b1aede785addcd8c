"""Fixtures and hooks of all tests."""

from __future__ import annotations

from collections.abc import Iterator

import certifi
import pytest
import structlog
from structlog.typing import Processor

from service.lifecycle.host import usable_cores


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`--numprocesses=auto`: one for each core that this process may use; more than eight wait for the longest file."""
    return min(8, usable_cores())


@pytest.fixture(scope="session", autouse=True)
def _few_certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One certificate authority in place of 140: each client of httpx reads all, 18 ms, though no test asks a stranger."""
    end = "-----END CERTIFICATE-----\n"
    file = tmp_path_factory.mktemp("certificates") / "one.pem"
    file.write_text(certifi.contents().partition(end)[0] + end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        yield


@pytest.fixture(autouse=True)
def _plain_logs() -> None:
    """Log lines without Rich: its tracebacks print every local variable, which takes seconds.

    Set for each test anew: one that serves in this process configures the logs of those after it.
    """
    structlog.reset_defaults()
    plain: list[Processor] = [structlog.processors.add_log_level, structlog.processors.format_exc_info]
    structlog.configure(processors=[*plain, structlog.processors.KeyValueRenderer(key_order=["event"])])
