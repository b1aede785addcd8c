"""A broken, malformed or half-written version is refused with its name, and blocks no other."""

from __future__ import annotations

import shutil
import time

import pytest

from engines.errors import (
    EngineUnavailable,
    ManifestInvalid,
    ModelCorrupt,
    ModelNotFound,
)
from engines.manifest import MANIFEST_FILE
from engines.repository.listing import VersionKey
from engines.repository.repository import ModelRepository
from engines.repository.versions import VersionChange
from tests.engines.repository.workshop import leased, states
from tests.fakes.captured_logs import capture_logs


def test_broken_version_is_refused_once_while_the_old_one_keeps_serving(repository, workshop, publish):
    publish(version=1)
    repository.scan()
    publish(version=2)
    workshop.broken["tiny/2"] = ModelCorrupt("digest differs")
    with capture_logs() as logs:
        assert repository.scan() == [VersionChange("refused", VersionKey("tiny", 2), "digest differs")]
        assert repository.scan() == []
    assert [line["event"] for line in logs] == ["model refused"]
    with repository.lease("tiny") as served:
        assert served.manifest.version == 1
    with pytest.raises(ModelNotFound, match="tiny/2 is refused: digest differs"):
        leased(repository, "tiny", 2)


def test_broken_newest_version_at_start_leaves_the_next_older_one(repository, workshop, publish):
    for version in (1, 2, 3):
        publish(version=version)
    workshop.broken = {"tiny/3": EngineUnavailable("no such operator"), "tiny/2": ValueError("surprise")}
    repository.scan()
    assert states(repository) == {"tiny/3": "refused", "tiny/2": "refused", "tiny/1": "ready"}
    reasons = [status.reason for status in repository.statuses()]
    assert reasons == ["no such operator", "tiny/2 cannot be loaded: ValueError: surprise", ""]


def test_refused_version_is_tried_again_when_its_files_change(repository, workshop, publish):
    publish(version=1)
    workshop.broken["tiny/1"] = ModelCorrupt("digest differs")
    repository.scan()
    workshop.broken.clear()
    assert repository.scan() == []
    publish(version=1, licence="MIT")
    assert repository.scan() == [VersionChange("loaded", VersionKey("tiny", 1))]


def test_malformed_manifest_is_refused_by_field(repository, publish):
    (publish(version=1) / MANIFEST_FILE).write_text('{"schema_version": 9}')
    (change,) = repository.scan()
    assert change.kind == "refused"
    assert "schema_version" in change.reason
    (status,) = repository.statuses()
    assert (status.state, status.manifest) == ("refused", None)


def test_malformed_manifest_of_an_older_version_is_refused_too(repository, publish):
    publish(version=2)
    (publish(version=1) / MANIFEST_FILE).write_text("{")
    repository.scan()
    assert states(repository) == {"tiny/2": "ready", "tiny/1": "refused"}


def test_manifest_of_another_model_is_refused(repository, publish, tmp_path):
    shutil.copytree(publish(version=1), tmp_path / "models/other/7")
    repository.scan()
    assert states(repository) == {"tiny/1": "ready", "other/7": "refused"}
    (refused,) = [status for status in repository.statuses() if status.name == "other"]
    assert "is of tiny/1" in refused.reason


def test_directory_without_a_manifest_and_strange_names_are_not_there(repository, publish, tmp_path):
    directory = publish(version=1)
    for name in ("tiny/.2.partial", "tiny/02", "tiny/latest", "Ünicode/1", ".cache/1"):
        shutil.copytree(directory, tmp_path / "models" / name)
    (tmp_path / "models/tiny/3").mkdir()
    (tmp_path / "models/README.md").write_text("a file")
    repository.scan()
    assert states(repository) == {"tiny/1": "ready"}


def test_half_written_version_is_not_called_broken_until_its_files_rest(tmp_path, workshop, publish):
    now_s = time.time()
    repository = ModelRepository(tmp_path / "models", workshop.open, wall_clock=lambda: now_s, settle_s=60)
    publish(version=1)
    repository.scan()
    publish(version=2)
    workshop.broken["tiny/2"] = ModelCorrupt("digest differs")
    with capture_logs() as logs:
        assert repository.scan() == []
    assert logs == []
    assert states(repository) == {"tiny/1": "ready"}
    now_s += 120
    assert [change.kind for change in repository.scan()] == ["refused"]


def test_files_that_break_under_the_loaded_version_leave_it_serving(repository, workshop, publish):
    publish(version=1)
    repository.scan()
    publish(version=1, licence="MIT")
    workshop.broken["tiny/1"] = ModelCorrupt("digest differs")
    assert [change.kind for change in repository.scan()] == ["refused"]
    assert repository.scan() == []
    (status,) = repository.statuses()
    assert (status.state, status.reason) == ("ready", "digest differs")
    with repository.lease("tiny") as served:
        assert served.manifest.licence == "CC0-1.0"


@pytest.mark.parametrize("error", [ManifestInvalid("x"), ValueError("x")], ids=["ours", "theirs"])
def test_one_broken_model_does_not_keep_the_others_from_loading(repository, workshop, publish, error: Exception):
    publish(name="broken")
    publish(name="zebra")
    workshop.broken["broken/1"] = error
    repository.scan()
    assert states(repository) == {"broken/1": "refused", "zebra/1": "ready"}
