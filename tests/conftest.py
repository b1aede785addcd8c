"""Fixtures and hooks of all tests."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest
import structlog
from hypothesis import HealthCheck, settings
from structlog.typing import Processor

from service.lifecycle.host import usable_cores

LONGEST = (
    "training/test_fit_processes.py",
    "service/ray/test_app.py",
    "docker/test_images.py",
    "training/test_end_to_end.py",
    "service/fleet/test_failures.py",
    "export/generators/test_deepfillv2.py",
    "docker/test_stack.py",
    "training/test_diverse_end_to_end.py",
    "service/saving/test_crash.py",
    "export/generators/test_lama_split.py",
    "service/processes/launcher/test_launcher.py",
    "export/generators/test_lama.py",
    "training/study/test_session.py",
)
"""Files that take longest; the last ones that run shall be short."""


def pytest_configure() -> None:
    """Let Hypothesis try the same examples in each run, however long they take: a busy machine fails no test."""
    settings.register_profile("retouch", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("retouch")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Answer `--numprocesses=auto`, and `logical` too.

    The fast tests have one process more than there are cores, as servers that start and end are waited for; the slow
    ones have one for each core (ADR 44). More than eight wait for the longest file.
    """
    return min(8, usable_cores() + (config.option.numprocesses != "logical"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Import all without the garbage collector, which then never looks at what was imported: it would each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the longest files before the others, which keep their order."""
    tests = Path(__file__).parent
    rank = {tests / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.fixture(scope="session", autouse=True)
def _few_certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One certificate authority in place of 140: each client of httpx reads all, in 18 ms, and no test needs one."""
    end = "-----END CERTIFICATE-----\n"
    file = tmp_path_factory.mktemp("certificates") / "one.pem"
    file.write_text(certifi.contents().partition(end)[0] + end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        yield


@pytest.fixture
def _end_signals_as_a_shell_leaves_them() -> Iterator[None]:
    """Take away handlers of the test run, such as that of the coverage measurement for SIGTERM."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _plain_logs() -> None:
    """Log lines without Rich: its tracebacks print every local variable, which takes seconds.

    Set for each test anew: one that serves in this process configures the logs of those after it.
    """
    structlog.reset_defaults()
    plain: list[Processor] = [structlog.processors.add_log_level, structlog.processors.format_exc_info]
    structlog.configure(processors=[*plain, structlog.processors.KeyValueRenderer(key_order=["event"])])
