"""Replacing an engine: leases on the old one are undisturbed, and new leases get the new one."""

from __future__ import annotations

import shutil

import pytest

from engines.errors import (
    EngineUnavailable,
    ModelNotFound,
)
from engines.fake import FakeEngine
from engines.repository.repository import ModelRepository
from tests.engines.repository.workshop import leased
from tests.fakes.captured_logs import capture_logs


def test_reload_puts_a_fresh_engine_in_place_and_the_old_lease_ends_in_peace(repository, workshop, publish):
    publish(version=1)
    repository.scan()
    with repository.lease("tiny") as old:
        repository.reload("tiny")
        with repository.lease("tiny") as fresh:
            assert fresh.engine is not old.engine
        assert old.engine.closes == 0
    assert [engine.closes for engine in workshop.opened] == [1, 0]


def test_reload_in_place_of_an_engine_that_was_replaced_already_does_nothing(repository, workshop, publish):
    publish(version=1)
    repository.scan()
    (dead,) = workshop.opened
    assert repository.reload("tiny", 1, instead_of=dead)
    assert not repository.reload("tiny", 1, instead_of=dead)
    assert [engine.closes for engine in workshop.opened] == [1, 0]


def test_reload_in_place_of_an_engine_that_was_set_aside_loads_none(repository, workshop, publish):
    publish(version=1)
    repository.scan()
    (old,) = workshop.opened
    publish(version=2)
    repository.scan()
    assert not repository.reload("tiny", 1, instead_of=old)
    assert len(workshop.opened) == 2


def test_lease_of_a_replaced_engine_leads_to_the_fresh_one_and_keeps_it_open(repository, workshop, publish):
    directory = publish(version=1)
    repository.scan()
    with repository.lease("tiny") as served:
        assert served.current is served
        repository.reload("tiny", instead_of=served.engine)
        repository.reload("tiny", instead_of=served.current.engine)
        assert served.current.engine is workshop.opened[2]
        shutil.rmtree(directory)
        repository.scan()
        assert [engine.closes for engine in workshop.opened] == [0, 0, 0]
    assert [engine.closes for engine in workshop.opened] == [1, 1, 1]


def test_lease_is_not_led_to_an_engine_of_another_manifest(repository, publish):
    publish(version=1)
    repository.scan()
    with repository.lease("tiny") as served:
        publish(version=1, licence="MIT")
        repository.scan()
        assert served.current is served


def test_reload_that_fails_can_be_tried_again(repository, workshop, publish):
    publish(version=1)
    repository.scan()
    workshop.broken["tiny/1"] = EngineUnavailable("out of memory")
    with pytest.raises(EngineUnavailable):
        repository.reload("tiny", 1)
    workshop.broken.clear()
    repository.reload("tiny", 1)
    assert len(workshop.opened) == 2


def test_close_waits_for_leases_and_offers_nothing_afterwards(repository, workshop, publish):
    publish(version=1)
    repository.scan()
    with repository.lease("tiny") as served:
        repository.close()
        assert served.engine.closes == 0
    repository.close()
    assert served.engine.closes == 1
    with pytest.raises(ModelNotFound, match="closed"):
        leased(repository, "tiny")
    assert repository.scan() == []
    assert len(workshop.opened) == 1


def test_closing_takes_what_is_loaded_and_what_is_only_offered(repository, workshop, publish):
    publish(version=1)
    publish(version=2)
    repository.scan()
    repository.close()
    assert [engine.closes for engine in workshop.opened] == [1]
    assert repository.statuses() == []


def test_engine_that_fails_to_close_does_not_fail_the_lease(tmp_path, publish):
    class Stubborn(FakeEngine):
        def close(self) -> None:
            raise OSError("device busy")

    directory = publish(version=1)
    repository = ModelRepository(tmp_path / "models", lambda _, manifest: Stubborn(manifest))
    repository.scan()
    with capture_logs() as logs, repository.lease("tiny"):
        shutil.rmtree(directory)
        repository.scan()
    assert [line["event"] for line in logs] == ["model removed", "engine did not close"]
