from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from service.lifecycle.loading import without_collections


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
