"""Older versions: offered, loaded by their first lease, and retried when loading may succeed."""

from __future__ import annotations

import errno
import time
from pathlib import Path

import pytest

from engines.errors import (
    EngineOutOfMemory,
    EngineUnavailable,
)
from engines.repository.listing import VersionKey
from engines.repository.repository import ModelRepository
from engines.repository.versions import VersionChange
from tests.engines.repository.workshop import LATER_S, Workshop, leased, states
from tests.fakes.captured_logs import capture_logs
from tests.fakes.clock import Clock


def test_older_version_is_loaded_by_its_first_lease_and_stays(repository, workshop, publish):
    publish(version=1)
    publish(version=2)
    repository.scan()
    assert len(workshop.engines("tiny/1")) == 0
    for _ in range(2):
        with repository.lease("tiny", 1) as served:
            assert served.manifest.version == 1
        assert repository.scan() == []
    assert len(workshop.engines("tiny/1")) == 1
    with repository.lease("tiny") as served:
        assert served.manifest.version == 2


def test_older_version_that_cannot_be_loaded_raises_and_is_refused(repository, workshop, publish):
    publish(version=1)
    publish(version=2)
    repository.scan()
    workshop.broken["tiny/1"] = EngineUnavailable("out of memory")
    with pytest.raises(EngineUnavailable, match="out of memory"), repository.lease("tiny", 1):
        pass
    assert states(repository) == {"tiny/2": "ready", "tiny/1": "refused"}


def test_older_version_whose_files_changed_is_loaded_anew(repository, workshop, publish):
    publish(version=1)
    publish(version=2)
    repository.scan()
    with repository.lease("tiny", 1):
        pass
    publish(version=1, licence="MIT")
    assert repository.scan() == [VersionChange("available", VersionKey("tiny", 1))]
    with repository.lease("tiny", 1) as served:
        assert served.manifest.licence == "MIT"
    assert [engine.closes for engine in workshop.engines("tiny/1")] == [1, 0]


@pytest.fixture
def clock() -> Clock:
    return Clock(time.time() + LATER_S)


@pytest.fixture
def timed(tmp_path: Path, workshop: Workshop, clock: Clock) -> ModelRepository:
    return ModelRepository(tmp_path / "models", workshop.open, wall_clock=clock)


def test_model_that_had_no_room_on_the_device_is_tried_again_a_while_later(timed, workshop, publish, clock):
    publish(version=1)
    workshop.broken["tiny/1"] = EngineOutOfMemory("the GPU is out of memory")
    assert timed.scan() == [VersionChange("refused", VersionKey("tiny", 1), "the GPU is out of memory")]
    workshop.broken.clear()
    clock.now += 29
    assert timed.scan() == []
    clock.now += 2
    assert timed.scan() == [VersionChange("loaded", VersionKey("tiny", 1))]
    clock.now += LATER_S
    assert timed.scan() == []
    assert [status.reason for status in timed.statuses()] == [""]


def test_model_that_had_no_room_is_tried_again_if_the_clock_was_set_back(timed, workshop, publish, clock):
    """A server may start before the clock of its host is set by the network."""
    publish(version=1)
    workshop.broken["tiny/1"] = EngineOutOfMemory("the GPU is out of memory")
    clock.now += LATER_S
    timed.scan()
    workshop.broken.clear()
    clock.now -= LATER_S
    assert timed.scan() == [VersionChange("loaded", VersionKey("tiny", 1))]


def test_model_whose_file_could_not_be_read_is_tried_again_and_named_once(timed, workshop, publish, clock):
    """Mending a file's permissions changes neither its modification time nor its size."""
    publish(version=1)
    workshop.broken["tiny/1"] = PermissionError(errno.EACCES, "Permission denied")
    with capture_logs() as logs:
        assert [change.kind for change in timed.scan()] == ["refused"]
        clock.now += 31
        timed.scan()
    assert [line["event"] for line in logs] == ["model refused"]
    workshop.broken.clear()
    clock.now += 31
    assert timed.scan() == [VersionChange("loaded", VersionKey("tiny", 1))]


@pytest.mark.parametrize("error", [EngineUnavailable("no such operator"), FileNotFoundError(errno.ENOENT, "no file")])
def test_model_that_is_broken_is_not_tried_again_however_long_it_waits(timed, workshop, publish, clock, error):
    publish(version=1)
    workshop.broken["tiny/1"] = error
    timed.scan()
    workshop.broken.clear()
    clock.now += LATER_S
    assert timed.scan() == []


def test_newest_version_takes_over_from_an_older_one_once_there_is_room(timed, workshop, publish, clock):
    publish(version=1)
    publish(version=2)
    workshop.broken["tiny/2"] = EngineOutOfMemory("the GPU is out of memory")
    timed.scan()
    assert states(timed) == {"tiny/1": "ready", "tiny/2": "refused"}
    clock.now += 31
    assert [change.kind for change in timed.scan()] == ["refused"]
    workshop.broken.clear()
    clock.now += 31
    assert timed.scan() == [
        VersionChange("loaded", VersionKey("tiny", 2)),
        VersionChange("available", VersionKey("tiny", 1)),
    ]


def test_older_version_that_had_no_room_is_offered_again_a_while_later(timed, workshop, publish, clock):
    publish(version=1)
    publish(version=2)
    timed.scan()
    workshop.broken["tiny/1"] = EngineOutOfMemory("the GPU is out of memory")
    with pytest.raises(EngineOutOfMemory):
        leased(timed, "tiny", 1)
    assert states(timed) == {"tiny/1": "refused", "tiny/2": "ready"}
    workshop.broken.clear()
    clock.now += 31
    assert timed.scan() == [VersionChange("available", VersionKey("tiny", 1))]
    assert leased(timed, "tiny", 1).version == 1
