from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator

import pytest

from service.lifecycle.loading import without_collections, without_rich


@pytest.fixture(params=[True, False], ids=["on", "off"])
def was_on(request: pytest.FixtureRequest) -> Iterator[bool]:
    """Turn the collector on or off for the test."""
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


def fail_to_load() -> None:
    assert not gc.isenabled()
    raise ImportError


def test_the_collector_is_off_while_something_is_loaded_and_then_as_before(was_on: bool) -> None:
    frozen = gc.get_freeze_count()
    with without_collections():
        assert not gc.isenabled()
        loaded = [[number] for number in range(1000)]
    assert gc.isenabled() == was_on
    assert gc.get_freeze_count() >= frozen + len(loaded), "what was loaded is still traversed"


def test_the_collector_is_as_before_after_something_could_not_be_loaded(was_on: bool) -> None:
    with pytest.raises(ImportError), without_collections():
        fail_to_load()
    assert gc.isenabled() == was_on


def test_structlog_is_loaded_without_rich_which_can_be_loaded_afterwards() -> None:
    code = """
import sys
from service.lifecycle.loading import without_rich
with without_rich():
    import structlog
print(structlog.dev.rich, "rich.console" in sys.modules)
import rich.console
print("rich.console" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["None False", "True"]


def test_rich_that_is_already_loaded_stays() -> None:
    import rich  # noqa: PLC0415

    with without_rich():
        assert sys.modules["rich"] is rich
    assert sys.modules["rich"] is rich
