"""The model repository follows its folder without a restart, and a bad version never stops a good one."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from engines.base import BatchShape
from engines.errors import (
    DeviceLost,
    EngineOutOfMemory,
    EngineUnavailable,
    ManifestInvalid,
    ModelCorrupt,
    ModelNotFound,
)
from engines.fake import FakeEngine
from engines.manifest import MANIFEST_FILE, Manifest
from engines.repository.listing import Key
from engines.repository.repository import Change, ModelRepository
from tests.fakes.clock import Clock

LATER_S = 3600.0


class Workshop:
    """Opens fake engines, records them, and fails for chosen versions."""

    def __init__(self) -> None:
        self.opened: list[CountsCloses] = []
        self.broken: dict[str, Exception] = {}

    def open(self, _directory: Path, manifest: Manifest) -> FakeEngine:
        if manifest.key in self.broken:
            raise self.broken[manifest.key]
        self.opened.append(CountsCloses(manifest))
        return self.opened[-1]

    def engines(self, key: str) -> list[FakeEngine]:
        return [engine for engine in self.opened if engine.manifest.key == key]


class CountsCloses(FakeEngine):
    closes = 0

    def close(self) -> None:
        self.closes += 1
        super().close()


@pytest.fixture
def workshop() -> Workshop:
    return Workshop()


@pytest.fixture
def repository(tmp_path: Path, workshop: Workshop) -> ModelRepository:
    return ModelRepository(tmp_path / "models", workshop.open, wall_clock=lambda: time.time() + LATER_S)


def states(repository: ModelRepository) -> dict[str, str]:
    return {f"{status.name}/{status.version}": status.state for status in repository.statuses()}


def leased(repository: ModelRepository, name: str, version: int | None = None) -> Manifest:
    """Return the manifest of the model that a lease gives."""
    with repository.lease(name, version) as served:
        return served.manifest


def test_empty_or_missing_folder_offers_nothing_and_says_so(repository):
    assert repository.scan() == []
    with pytest.raises(ModelNotFound, match=r"no model photos; available: none in .*/models$"):
        leased(repository, "photos")


def test_newest_version_is_loaded_and_older_ones_are_only_offered(repository, workshop, publish):
    publish(version=1)
    publish(version=10)
    publish(version=9)
    assert repository.scan() == [
        Change("loaded", Key("tiny", 10)),
        Change("available", Key("tiny", 1)),
        Change("available", Key("tiny", 9)),
    ]
    assert [engine.manifest.version for engine in workshop.opened] == [10]
    assert leased(repository, "tiny").version == 10
    assert repository.scan() == []


def test_every_model_is_loaded(repository, publish):
    publish(name="photos")
    publish(name="facades", task="translate")
    repository.scan()
    assert states(repository) == {"facades/1": "ready", "photos/1": "ready"}


def test_new_version_is_picked_up_and_the_old_engine_set_aside(repository, workshop, publish):
    publish(version=1)
    repository.scan()
    publish(version=2)
    assert repository.scan() == [Change("loaded", Key("tiny", 2)), Change("available", Key("tiny", 1))]
    with repository.lease("tiny") as served:
        assert served.manifest.version == 2
    assert workshop.engines("tiny/1")[0].closes == 1


def test_broken_version_is_refused_once_while_the_old_one_keeps_serving(repository, workshop, publish):
    publish(version=1)
    repository.scan()
    publish(version=2)
    workshop.broken["tiny/2"] = ModelCorrupt("digest differs")
    with capture_logs() as logs:
        assert repository.scan() == [Change("refused", Key("tiny", 2), "digest differs")]
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
    assert repository.scan() == [Change("loaded", Key("tiny", 1))]


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


def test_complete_version_is_loaded_however_young_its_files_are(tmp_path, workshop, publish):
    repository = ModelRepository(tmp_path / "models", workshop.open, settle_s=1e6)
    publish(version=1)
    assert repository.scan() == [Change("loaded", Key("tiny", 1))]


def test_removed_model_is_closed_after_its_last_lease(repository, workshop, publish):
    directory = publish(version=1)
    repository.scan()
    with repository.lease("tiny") as first:
        with repository.lease("tiny"):
            shutil.rmtree(directory)
            assert repository.scan() == [Change("removed", Key("tiny", 1))]
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
    assert repository.scan() == [Change("available", Key("tiny", 1))]
    with repository.lease("tiny", 1) as served:
        assert served.manifest.licence == "MIT"
    assert [engine.closes for engine in workshop.engines("tiny/1")] == [1, 0]


def test_files_that_change_under_the_loaded_version_are_loaded(repository, workshop, publish):
    publish(version=1)
    repository.scan()
    publish(version=1, licence="MIT")
    assert repository.scan() == [Change("loaded", Key("tiny", 1))]
    assert leased(repository, "tiny").licence == "MIT"
    assert [engine.closes for engine in workshop.opened] == [1, 0]


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


@pytest.fixture
def clock() -> Clock:
    return Clock(time.time() + LATER_S)


@pytest.fixture
def timed(tmp_path: Path, workshop: Workshop, clock: Clock) -> ModelRepository:
    return ModelRepository(tmp_path / "models", workshop.open, wall_clock=clock)


def test_model_that_had_no_room_on_the_device_is_tried_again_a_while_later(timed, workshop, publish, clock):
    publish(version=1)
    workshop.broken["tiny/1"] = EngineOutOfMemory("the GPU is out of memory")
    assert timed.scan() == [Change("refused", Key("tiny", 1), "the GPU is out of memory")]
    workshop.broken.clear()
    clock.now += 29
    assert timed.scan() == []
    clock.now += 2
    assert timed.scan() == [Change("loaded", Key("tiny", 1))]
    clock.now += LATER_S
    assert timed.scan() == []
    assert [status.reason for status in timed.statuses()] == [""]


def test_model_that_is_broken_is_not_tried_again_however_long_it_waits(timed, workshop, publish, clock):
    publish(version=1)
    workshop.broken["tiny/1"] = EngineUnavailable("no such operator")
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
    assert timed.scan() == [Change("loaded", Key("tiny", 2)), Change("available", Key("tiny", 1))]


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
    assert timed.scan() == [Change("available", Key("tiny", 1))]
    assert leased(timed, "tiny", 1).version == 1


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


def test_status_names_engine_precision_and_device_of_what_is_loaded(repository, publish):
    publish(version=1)
    publish(version=2)
    repository.scan()
    newest, older = repository.statuses()
    assert (newest.engine, newest.precision, newest.device) == ("fake", "fp32", "cpu")
    assert (older.engine, older.manifest.version) == (None, 1)


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


def test_version_removed_while_it_loads_is_closed_again(tmp_path, publish):
    engines: list[CountsCloses] = []
    directory = publish(version=1)

    def open_and_lose(_directory: Path, manifest: Manifest) -> FakeEngine:
        engines.append(CountsCloses(manifest))
        if manifest.version == 1:
            shutil.rmtree(directory, ignore_errors=True)
            repository.scan()
        return engines[-1]

    publish(version=2)
    repository = ModelRepository(tmp_path / "models", open_and_lose)
    repository.scan()
    with pytest.raises(ModelNotFound), repository.lease("tiny", 1):
        pass
    assert [engine.closes for engine in engines] == [0, 1]


def test_version_that_loads_while_the_repository_closes_is_closed_too(tmp_path, publish):
    engines: list[CountsCloses] = []

    def open_and_close(_directory: Path, manifest: Manifest) -> FakeEngine:
        engines.append(CountsCloses(manifest))
        repository.close()
        return engines[-1]

    publish(version=1)
    repository = ModelRepository(tmp_path / "models", open_and_close)
    assert repository.scan() == []
    assert [engine.closes for engine in engines] == [1]


def test_link_to_nowhere_beside_the_files_of_a_version_changes_nothing(repository, workshop, publish):
    directory = publish(version=1)
    repository.scan()
    (directory / "notes").symlink_to("/nowhere/at/all")
    assert repository.scan() == []
    assert states(repository) == {"tiny/1": "ready"}
    assert len(workshop.opened) == 1


def test_link_to_nowhere_as_the_only_file_is_no_version(repository, publish):
    (publish(version=1) / MANIFEST_FILE).unlink()
    (publish(version=2).parent / "1" / MANIFEST_FILE).symlink_to("vanished")
    repository.scan()
    assert states(repository) == {"tiny/2": "ready"}


@pytest.mark.parametrize("lost", ["models", "models/tiny/2/manifest.json"])
def test_what_is_loaded_serves_on_while_the_folder_or_the_manifest_is_away(
    repository, workshop, publish, tmp_path, lost: str
):
    publish(version=1)
    publish(version=2)
    repository.scan()
    (tmp_path / lost).rename(tmp_path / "away")
    with capture_logs() as logs:
        assert repository.scan() == []
        assert repository.scan() == []
    assert states(repository) == {"tiny/2": "ready", "tiny/1": "available"}
    assert leased(repository, "tiny").version == 2
    assert {line["event"] for line in logs} == {"model cannot be read, what is loaded of it serves on"}
    assert len(logs) == (2 if lost == "models" else 1), "said once for each version"
    (tmp_path / "away").rename(tmp_path / lost)
    assert repository.scan() == []
    assert len(workshop.opened) == 1


@pytest.mark.parametrize("listable", [False, True], ids=["chmod 0", "chmod r"])
@pytest.mark.parametrize("hidden", ["", "tiny", "tiny/2"])
def test_what_is_loaded_serves_on_while_its_folder_may_not_be_read(
    repository, publish, tmp_path, monkeypatch, hidden: str, listable: bool
):
    publish(version=1)
    publish(version=2)
    repository.scan()
    hide(monkeypatch, tmp_path / "models" / hidden, listable)
    assert repository.scan() == []
    assert leased(repository, "tiny").version == 2
    monkeypatch.undo()
    assert repository.scan() == []


def hide(monkeypatch: pytest.MonkeyPatch, folder: Path, listable: bool) -> None:
    """Make a folder unreadable, though its names may stay listable, as `chmod` does for users other than root."""
    stat, iterdir = Path.stat, Path.iterdir

    def refuse(path: Path) -> None:
        if folder in (path, *path.parents):
            raise PermissionError(13, "Permission denied", str(path))

    def no_stat(path: Path, **options: bool) -> os.stat_result:
        if folder != path:
            refuse(path)
        return stat(path, **options)

    def no_iterdir(path: Path) -> Iterator[Path]:
        if not (listable and path == folder):
            refuse(path)
        return iterdir(path)

    monkeypatch.setattr(Path, "stat", no_stat)
    monkeypatch.setattr(Path, "iterdir", no_iterdir)


def test_only_the_models_that_are_asked_for_are_loaded(tmp_path, workshop, publish):
    publish(name="photos")
    publish(name="facades", task="translate")
    repository = ModelRepository(tmp_path / "models", workshop.open, only={"photos"})
    repository.scan()
    assert states(repository) == {"photos/1": "ready"}


def test_two_first_leases_of_an_older_version_open_one_engine(tmp_path, publish):
    entered, go = threading.Event(), threading.Event()
    opened: list[str] = []

    def open_slowly(_directory: Path, manifest: Manifest) -> FakeEngine:
        opened.append(manifest.key)
        if manifest.version == 1:
            entered.set()
            assert go.wait(10)
        return FakeEngine(manifest)

    publish(version=1)
    publish(version=2)
    repository = ModelRepository(tmp_path / "models", open_slowly)
    repository.scan()
    engines: list[object] = []

    def use() -> None:
        with repository.lease("tiny", 1) as served:
            engines.append(served.engine)

    threads = [threading.Thread(target=use) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert entered.wait(10)
    with repository.lease("tiny") as served:  # the newest is leased while the older one loads
        assert served.manifest.version == 2
    go.set()
    for thread in threads:
        thread.join(10)
    assert opened == ["tiny/2", "tiny/1"]
    assert len(engines) == 2
    assert engines[0] is engines[1]


def test_threads_that_lease_while_versions_come_and_go_never_meet_a_closed_engine(repository, publish):
    publish(version=1)
    repository.scan()
    stop = threading.Event()
    failures: list[BaseException] = []
    leases = [0, 0, 0]

    def use(index: int) -> None:
        try:
            while not stop.is_set():
                with repository.lease("tiny") as served:
                    served.engine.warm_up([BatchShape(1, 16, 16)])
                    leases[index] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(index,)) for index in range(len(leases))]
    for thread in threads:
        thread.start()
    for version in range(2, 30):
        directory = publish(version=version)
        repository.scan()
        if version % 3 == 0:
            shutil.rmtree(directory)
            repository.scan()
        repository.reload("tiny")
    stop.set()
    for thread in threads:
        thread.join(10)
    assert failures == []
    assert all(leases)


@pytest.mark.parametrize("error", [ManifestInvalid("x"), ValueError("x")], ids=["ours", "theirs"])
def test_one_broken_model_does_not_keep_the_others_from_loading(repository, workshop, publish, error: Exception):
    publish(name="broken")
    publish(name="zebra")
    workshop.broken["broken/1"] = error
    repository.scan()
    assert states(repository) == {"broken/1": "refused", "zebra/1": "ready"}
