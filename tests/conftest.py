"""Fixtures and hooks for all tests."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
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
"""Files that take longest; they start first, so that the last to run are short."""


STARTUP = Path(__file__).parent / "startup"
"""Folder of what each Python does first whose coverage is measured in a process of its own."""


def pytest_configure() -> None:
    """Let Hypothesis try the same examples in each run, however long they take: a busy machine fails no test."""
    settings.register_profile("retouch", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("retouch")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of processes for `--numprocesses=auto` and `logical`.

    The fast tests (`auto`) get one process more than there are cores, as they often wait for servers; the slow ones
    (`logical`) get one for each core (ADR 44). At most 8, as more would only wait for the longest file.
    """
    return min(8, usable_cores() + (config.option.numprocesses != "logical"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect with the garbage collector off, and freeze what was imported, which every collection would scan."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Move the longest files to the front; the others keep their order."""
    tests = Path(__file__).parent
    rank = {tests / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.fixture(scope="module", autouse=True)
def _coverage_of_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Measure the coverage of processes that tests start only in modules with the mark `covers_processes`.

    It takes a third of a server's CPU time, and a few modules run all code that only such processes run (ADR 44).
    """
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("covers_processes") is None:
            patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
        else:
            patch.setenv("PYTHONPATH", str(STARTUP), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session", autouse=True)
def _few_certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give httpx one certificate authority in place of 140: each client reads all, in 18 ms, and no test needs any."""
    end = "-----END CERTIFICATE-----\n"
    file = tmp_path_factory.mktemp("certificates") / "one.pem"
    file.write_text(certifi.contents().partition(end)[0] + end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        yield


@pytest.fixture
def _end_signals_as_a_shell_leaves_them() -> Iterator[None]:
    """Remove the test run's own signal handlers, such as coverage's for SIGTERM."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class _PlainLogger:
    """A logger that writes lines to the current standard output, or nothing if that is closed.

    structlog's own calls `print` without a file. CPython's `print` (seen in 3.11) then holds no reference to standard
    output, and the one that capsys has made is freed at the end of a test. If a server's thread is in the middle of
    a line, it goes on in freed memory.
    """

    def _write_line(self, message: str) -> None:
        with suppress(ValueError):  # the test has ended
            sys.stdout.write(message + "\n")

    log = debug = info = warn = warning = msg = _write_line
    fatal = failure = err = error = critical = exception = _write_line


@pytest.fixture(autouse=True)
def _plain_logs() -> None:
    """Log without Rich, whose tracebacks print every local variable, which takes seconds.

    This is set anew for each test, as a test that serves in this process reconfigures logging for later ones.
    """
    structlog.reset_defaults()
    plain: list[Processor] = [structlog.processors.add_log_level, structlog.processors.format_exc_info]
    structlog.configure(
        processors=[*plain, structlog.processors.KeyValueRenderer(key_order=["event"])],
        logger_factory=lambda *_: _PlainLogger(),
    )
