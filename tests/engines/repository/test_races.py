"""Changes to the models folder while versions are loaded, leased or read."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.base import BatchShape
from engines.errors import (
    ModelNotFound,
)
from engines.fake import FakeEngine
from engines.manifest import MANIFEST_FILE, Manifest
from engines.repository.repository import ModelRepository
from tests.engines.repository.workshop import CountsCloses, leased, states
from tests.fakes.captured_logs import capture_logs
from tests.serving.waiting import wait_until


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


def test_a_model_that_is_gone_is_removed_before_another_is_loaded(tmp_path, publish):
    served: list[list[str]] = []

    def open_and_look(_directory: Path, manifest: Manifest) -> FakeEngine:
        served.append([status.name for status in repository.statuses()])
        return FakeEngine(manifest)

    directory = publish(name="before", version=1)
    repository = ModelRepository(tmp_path / "models", open_and_look)
    repository.scan()
    shutil.rmtree(directory.parent)
    publish(name="after", version=1)
    repository.scan()
    assert served == [[], []]


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
    assert {line["event"] for line in logs} == {"model cannot be read, its loaded version keeps serving"}
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
    """Make a folder's files and, unless `listable`, its names unreadable, as `chmod` does for all users but root."""
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
    wait_until(lambda: failures or all(leases))
    stop.set()
    for thread in threads:
        thread.join(10)
    assert failures == []
    assert all(leases)
