"""The spool on a disk that is full, hangs, cannot sync or loses the folder."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from service.saving.local_disk.disk import Disk
from service.saving.spool import own_records
from service.saving.spool.process_folder import SPOOL
from service.saving.spool.segment import SpooledResult
from tests.fakes.captured_logs import capture_logs
from tests.fakes.disk import FailingDisk, fill, tmpfs
from tests.service.saving.spool.segments import BODY, ID, OTHER, SIDECAR, segments, spool


class HangingDisk(Disk):
    """A disk whose appends wait until it is released."""

    def __init__(self) -> None:
        self.stuck, self.release = threading.Event(), threading.Event()
        self.release.set()

    def append(self, descriptor: int, pieces: Sequence[bytes], at: int) -> None:
        if not self.release.is_set():
            self.stuck.set()
        self.release.wait(30)
        super().append(descriptor, pieces, at)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, room = spool(tmp_path, "here"), [1000]
    pwritev = os.pwritev

    def until_full(descriptor: int, pieces: list[memoryview], at: int) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = b"".join(pieces)[: room[0]]
        room[0] -= len(taken)
        return pwritev(descriptor, [taken], at)

    monkeypatch.setattr(os, "pwritev", until_full)
    with pytest.raises(OSError, match="No space left"):
        files.write(ID, BODY, SIDECAR)
    (segment,) = segments(tmp_path, "here")
    assert segment.stat().st_size == 0
    room[0] = 10**6
    files.write(ID, BODY, SIDECAR)
    assert files.read(ID) == spool(tmp_path, "there").read(ID) == SpooledResult(BODY, SIDECAR)


def test_a_disk_that_takes_little_at_a_time_gets_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwritev = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, pieces, at: pwritev(fd, [b"".join(pieces)[:777]], at))
    files = spool(tmp_path, "here")
    files.write(ID, BODY, SIDECAR)
    assert files.read(ID) == SpooledResult(BODY, SIDECAR)


def test_a_removed_folder_is_made_again_and_locked(tmp_path: Path) -> None:
    here, there = spool(tmp_path, "here"), spool(tmp_path, "there")
    shutil.rmtree(tmp_path / SPOOL)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: here.write(f"{number:032x}", BODY, SIDECAR), range(32)))
    assert len(there.ids()) == 32
    assert list(there.inherit()) == [], "it lives"
    here.close()
    assert len(list(there.inherit())) == 32, "it can be inherited, though the heir's folder was removed too"


def test_a_write_that_hangs_holds_up_neither_readers_nor_the_end(tmp_path: Path) -> None:
    disk = HangingDisk()
    files, stuck, release = spool(tmp_path, "here", disk, 0.05), disk.stuck, disk.release
    files.write(ID, BODY, SIDECAR)
    release.clear()
    writer = threading.Thread(target=files.write, args=(OTHER, BODY, SIDECAR))
    writer.start()
    assert stuck.wait(30)
    try:
        assert files.read(ID) == SpooledResult(BODY, SIDECAR)
        files.close()
    finally:
        release.set()
        writer.join()


def test_a_result_that_cannot_be_crossed_out_has_left_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = spool(tmp_path, "here")
    files.write(ID, BODY, SIDECAR)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(own_records, "mark_deleted", full)
    with capture_logs() as lines:
        files.remove(ID)
    assert [line["result"] for line in lines] == [ID]
    assert files.read(ID) is None


def test_a_file_that_could_not_be_synced_is_neither_appended_to_nor_synced_again(tmp_path: Path) -> None:
    disk = FailingDisk()
    files = spool(tmp_path, "here", disk)
    files.write(ID, BODY, SIDECAR)
    disk.fail(errno.EIO, ("sync",))
    with pytest.raises(OSError, match="Input/output error"):
        files.sync(ID)
    disk.mend()
    asked = disk.asked.count("sync")
    with pytest.raises(OSError, match="Input/output error"):  # although the disk would now sync
        files.sync(ID)
    assert disk.asked.count("sync") == asked
    assert files.is_suspect(ID)
    files.write(OTHER, BODY, SIDECAR)
    assert not files.is_suspect(OTHER)
    files.sync(OTHER)
    assert len(segments(tmp_path, "here")) == 2


def test_on_a_full_disk_room_that_saved_results_take_in_the_spool_is_used_again(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", "1m") as disk:
        files = spool(disk, "here")
        files.write(ID, bytes(500_000), SIDECAR)
        files.remove(ID)
        fill(disk)
        files.write(OTHER, bytes(400_000), SIDECAR)
        assert files.read(OTHER) == SpooledResult(bytes(400_000), SIDECAR)
        with pytest.raises(OSError, match="No space left"):
            files.write(ID, bytes(400_000), SIDECAR)
        assert files.read(OTHER) == SpooledResult(bytes(400_000), SIDECAR)
        assert files.read(ID) is None
        files.close()
        assert [result_id for result_id, _ in spool(disk, "next").inherit()] == [OTHER]
