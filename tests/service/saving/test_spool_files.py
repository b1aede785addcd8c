"""The spool on disk: whole or not there, and readable from every process that shares the folder."""

from __future__ import annotations

import errno
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from service.saving import spool_files
from service.saving.owners import SPOOL, Owner
from service.saving.spool_files import Spooled, SpoolFiles

ID, OTHER = f"{1:032x}", f"{2:032x}"
BODY = bytes(range(256)) * 400
SIDECAR = {"id": ID, "media_type": "image/png"}


def spool(root: Path, name: str) -> SpoolFiles:
    files = SpoolFiles(Owner(root, lambda: name))
    files.open()
    return files


def test_what_one_process_spooled_every_process_reads(tmp_path: Path) -> None:
    here, there = spool(tmp_path, "here"), spool(tmp_path, "there")
    here.write(ID, BODY, SIDECAR)
    here.sync(ID)
    assert here.read(ID) == there.read(ID) == Spooled(BODY, SIDECAR)
    here.remove(ID)
    here.remove(ID)
    here.sync(ID)
    assert here.read(ID) is there.read(ID) is None


def test_what_a_dead_process_left_is_inherited_once_and_stays_readable(tmp_path: Path) -> None:
    dead, heir, late = spool(tmp_path, "dead"), spool(tmp_path, "heir"), spool(tmp_path, "late")
    dead.write(ID, BODY, SIDECAR)
    assert list(heir.inherit()) == [], "it lives"
    dead.close()
    assert late.read(ID) == Spooled(BODY, SIDECAR)
    assert list(heir.inherit()) == [(ID, Spooled(BODY, SIDECAR))]
    assert list(late.inherit()) == []
    assert late.read(ID) == heir.read(ID) == Spooled(BODY, SIDECAR)
    assert not (tmp_path / SPOOL / "dead").exists()


@pytest.mark.parametrize("length", [0, 10, 60, 5000])
def test_a_torn_result_is_not_inherited_but_removed_and_told(tmp_path: Path, length: int) -> None:
    dead, heir = spool(tmp_path, "dead"), spool(tmp_path, "heir")
    dead.write(ID, BODY, SIDECAR)
    dead.write(OTHER, BODY, SIDECAR)
    os.truncate(tmp_path / SPOOL / "dead" / ID, length)
    dead.close()
    with capture_logs() as lines:
        assert [result_id for result_id, _ in heir.inherit()] == [OTHER]
    assert [line["result"] for line in lines] == [ID]
    assert heir.read(ID) is None


def test_a_result_whose_bytes_changed_is_torn(tmp_path: Path) -> None:
    files = spool(tmp_path, "here")
    files.write(ID, BODY, SIDECAR)
    path = tmp_path / SPOOL / "here" / ID
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert files.read(ID) is None


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, room = spool(tmp_path, "here"), [1000]
    writev = os.writev

    def until_full(descriptor: int, pieces: list[memoryview]) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = b"".join(pieces)[: room[0]]
        room[0] -= len(taken)
        return writev(descriptor, [taken])

    monkeypatch.setattr(os, "writev", until_full)
    with pytest.raises(OSError, match="No space left"):
        files.write(ID, BODY, SIDECAR)
    assert [path.name for path in (tmp_path / SPOOL / "here").iterdir()] == ["lock"]
    room[0] = 10**6
    files.write(ID, BODY, SIDECAR)
    assert files.read(ID) == Spooled(BODY, SIDECAR)


def test_a_disk_that_takes_little_at_a_time_gets_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writev = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, pieces: writev(fd, [b"".join(pieces)[:777]]))
    files = spool(tmp_path, "here")
    files.write(ID, BODY, SIDECAR)
    assert files.read(ID) == Spooled(BODY, SIDECAR)


def test_a_folder_that_somebody_removed_is_made_again_and_locked(tmp_path: Path) -> None:
    here, there = spool(tmp_path, "here"), spool(tmp_path, "there")
    shutil.rmtree(tmp_path / SPOOL)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: here.write(f"{number:032x}", BODY, SIDECAR), range(32)))
    assert len(there.ids()) == 32
    assert list(there.inherit()) == [], "it lives"
    here.close()
    there.write(ID, BODY, SIDECAR)
    assert len(list(there.inherit())) == 32, "it can be inherited"


def test_a_result_that_moves_to_its_heir_during_a_look_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heir's folder is looked at first, the dead one's after the move; another result is still in the latter."""
    dead, heir, reader = spool(tmp_path, "dead"), spool(tmp_path, "a-heir"), spool(tmp_path, "z-reader")
    dead.write(ID, BODY, SIDECAR)
    dead.write(OTHER, BODY, SIDECAR)
    moving = heir.inherit()
    looked_at: list[Path] = []
    load = spool_files._load

    def load_and_move(path: Path) -> Spooled | None:
        found = load(path)
        looked_at.append(path)
        if len(looked_at) == 2:  # in the reader's own folder and in the heir's
            dead.close()
            next(moving)
        return found

    monkeypatch.setattr(spool_files, "_load", load_and_move)
    assert reader.read(ID) == Spooled(BODY, SIDECAR)
    moving.close()


def test_all_that_is_spooled_is_listed(tmp_path: Path) -> None:
    here, there = spool(tmp_path, "here"), spool(tmp_path, "there")
    here.write(ID, BODY, SIDECAR)
    there.write(OTHER, BODY, SIDECAR)
    assert here.ids() == there.ids() == {ID, OTHER}
