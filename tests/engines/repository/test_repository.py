"""The model repository follows its folder without a restart, and a bad version never stops a good one."""

from __future__ import annotations

import shutil

import pytest

from engines.errors import (
    DeviceLost,
    ModelNotFound,
)
from engines.repository.listing import VersionKey
from engines.repository.repository import ModelRepository
from engines.repository.versions import VersionChange
from tests.engines.repository.workshop import leased, states


def test_empty_or_missing_folder_offers_nothing_and_says_so(repository):
    assert repository.scan() == []
    with pytest.raises(ModelNotFound, match=r"no model photos; available: none in .*/models$"):
        leased(repository, "photos")


def test_newest_version_is_loaded_and_older_ones_are_only_offered(repository, workshop, publish):
    publish(version=1)
    publish(version=10)
    publish(version=9)
    assert repository.scan() == [
        VersionChange("loaded", VersionKey("tiny", 10)),
        VersionChange("available", VersionKey("tiny", 1)),
        VersionChange("available", VersionKey("tiny", 9)),
    ]
    assert [engine.manifest.version for engine in workshop.opened] == [10]
    assert leased(repository, "tiny").version == 10
    assert repository.scan() == []


def test_every_model_is_loaded(repository, publish):
    publish(name="photos")
    publish(name="facades", task="translate")
    repository.scan()
    assert states(repository) == {"facades/1": "ready", "photos/1": "ready"}


def test_models_that_are_named_first_are_loaded_first_and_in_that_order(tmp_path, workshop, publish):
    for name in ("a", "b", "c", "d"):
        publish(name=name)
    ModelRepository(tmp_path / "models", workshop.open, first=("d", "none", "c")).scan()
    assert [engine.manifest.name for engine in workshop.opened] == ["d", "c", "a", "b"]


def test_new_version_is_picked_up_and_the_old_engine_set_aside(repository, workshop, publish):
    publish(version=1)
    repository.scan()
    publish(version=2)
    assert repository.scan() == [
        VersionChange("loaded", VersionKey("tiny", 2)),
        VersionChange("available", VersionKey("tiny", 1)),
    ]
    with repository.lease("tiny") as served:
        assert served.manifest.version == 2
    assert workshop.engines("tiny/1")[0].closes == 1


def test_complete_version_is_loaded_however_young_its_files_are(tmp_path, workshop, publish):
    repository = ModelRepository(tmp_path / "models", workshop.open, settle_s=1e6)
    publish(version=1)
    assert repository.scan() == [VersionChange("loaded", VersionKey("tiny", 1))]


def test_removed_model_is_closed_after_its_last_lease(repository, workshop, publish):
    directory = publish(version=1)
    repository.scan()
    with repository.lease("tiny") as first:
        with repository.lease("tiny"):
            shutil.rmtree(directory)
            assert repository.scan() == [VersionChange("removed", VersionKey("tiny", 1))]
            with pytest.raises(ModelNotFound):
                leased(repository, "tiny")
        assert first.engine.closes == 0
    assert first.engine.closes == 1
    assert repository.statuses() == []


def test_removing_the_newest_version_brings_the_older_one_back(repository, publish):
    publish(version=1)
    directory = publish(version=2)
    repository.scan()
    shutil.rmtree(directory)
    repository.scan()
    assert states(repository) == {"tiny/1": "ready"}


def test_files_that_change_under_the_loaded_version_are_loaded(repository, workshop, publish):
    publish(version=1)
    repository.scan()
    publish(version=1, licence="MIT")
    assert repository.scan() == [VersionChange("loaded", VersionKey("tiny", 1))]
    assert leased(repository, "tiny").licence == "MIT"
    assert [engine.closes for engine in workshop.opened] == [1, 0]


def test_lost_device_ends_the_scan_and_is_not_the_fault_of_a_model(repository, workshop, publish):
    publish(name="photos")
    publish(name="zebra")
    workshop.broken["photos/1"] = DeviceLost("the GPU context is lost")
    with pytest.raises(DeviceLost, match="context is lost"):
        repository.scan()
    assert isinstance(repository.device_lost, DeviceLost)
    assert workshop.opened == []
    with pytest.raises(ModelNotFound, match="photos/1 is refused: the GPU context is lost"):
        leased(repository, "photos")


@pytest.mark.parametrize("load", ["lease", "reload"])
def test_device_that_is_lost_over_a_lease_or_a_reload_is_noted_too(repository, workshop, publish, load: str):
    publish(version=1)
    publish(version=2)
    repository.scan()
    workshop.broken = dict.fromkeys(("tiny/1", "tiny/2"), DeviceLost("the GPU context is lost"))
    with pytest.raises(DeviceLost):
        leased(repository, "tiny", 1) if load == "lease" else repository.reload("tiny")
    assert isinstance(repository.device_lost, DeviceLost)


def test_status_names_engine_precision_and_device_of_what_is_loaded(repository, publish):
    publish(version=1)
    publish(version=2)
    repository.scan()
    newest, older = repository.statuses()
    assert (newest.engine, newest.precision, newest.device) == ("fake", "fp32", "cpu")
    assert (older.engine, older.manifest.version) == (None, 1)


def test_only_the_models_that_are_asked_for_are_loaded(tmp_path, workshop, publish):
    publish(name="photos")
    publish(name="facades", task="translate")
    repository = ModelRepository(tmp_path / "models", workshop.open, only={"photos"})
    repository.scan()
    assert states(repository) == {"photos/1": "ready"}
