"""The spool on disk: whole or not there, and readable from every process that shares the folder."""

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
from structlog.testing import capture_logs

from service.saving.disk_io import Disk
from service.saving.spool import files as spool_files
from service.saving.spool.files import SpoolFiles
from service.saving.spool.process_folder import SPOOL, Owner
from service.saving.spool.segment import SEGMENT_BYTES, Spooled
from tests.fakes.disk import FailingDisk, fill, tmpfs

ID, OTHER = f"{1:032x}", f"{2:032x}"
BODY = bytes(range(256)) * 400
SIDECAR = {"id": ID, "media_type": "image/png"}


def spool(root: Path, name: str, disk: Disk | None = None) -> SpoolFiles:
    files = SpoolFiles(Owner(root, lambda: name), disk)
    files.open()
    return files


class HangingDisk(Disk):
    """Appends nothing until it is released."""

    def __init__(self) -> None:
        self.stuck, self.release = threading.Event(), threading.Event()
        self.release.set()

    def append(self, descriptor: int, pieces: Sequence[bytes], at: int) -> None:
        if not self.release.is_set():
            self.stuck.set()
        self.release.wait(30)
        super().append(descriptor, pieces, at)


def segments(root: Path, name: str) -> list[Path]:
    return sorted((root / SPOOL / name).glob("*.log"))


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


@pytest.mark.parametrize("length", [1, 10, 60, 5000])
def test_a_torn_end_is_not_inherited_but_told(tmp_path: Path, length: int) -> None:
    dead, heir = spool(tmp_path, "dead"), spool(tmp_path, "heir")
    dead.write(OTHER, BODY, SIDECAR)
    (segment,) = segments(tmp_path, "dead")
    whole = segment.stat().st_size
    dead.write(ID, BODY, SIDECAR)
    os.truncate(segment, whole + length)
    dead.close()
    with capture_logs() as lines:
        assert [result_id for result_id, _ in heir.inherit()] == [OTHER]
    assert [line["bytes"] for line in lines] == [length]
    assert heir.read(ID) is None


def test_a_result_whose_bytes_changed_is_torn(tmp_path: Path) -> None:
    files, reader = spool(tmp_path, "here"), spool(tmp_path, "there")
    files.write(ID, BODY, SIDECAR)
    files.write(OTHER, BODY, SIDECAR)
    (segment,) = segments(tmp_path, "here")
    data = segment.read_bytes()
    segment.write_bytes(data[: len(data) // 2 - 1] + b"?" + data[len(data) // 2 :])
    assert files.read(ID) is reader.read(ID) is None
    assert files.read(OTHER) == reader.read(OTHER) == Spooled(BODY, SIDECAR)
    files.close()
    with capture_logs() as lines:
        assert [result_id for result_id, _ in reader.inherit()] == [OTHER]
    assert [line["result"] for line in lines] == [ID]


def test_a_result_that_left_the_spool_is_seen_by_nobody_though_its_bytes_are_there(tmp_path: Path) -> None:
    here, there = spool(tmp_path, "here"), spool(tmp_path, "there")
    here.write(ID, BODY, SIDECAR)
    here.write(OTHER, BODY, SIDECAR)
    here.remove(ID)
    assert there.read(ID) is None
    assert here.ids() == there.ids() == {OTHER}
    here.close()
    assert [result_id for result_id, _ in there.inherit()] == [OTHER]


def test_a_long_segment_is_followed_by_another_and_goes_when_nothing_in_it_counts(tmp_path: Path) -> None:
    files = spool(tmp_path, "here")
    large = bytes(SEGMENT_BYTES // 2)
    for number in range(5):
        files.write(f"{number:032x}", large, SIDECAR)
    first, second, last = segments(tmp_path, "here")
    files.remove(f"{0:032x}")
    assert first.exists(), "another result in it counts"
    assert files.read(f"{1:032x}") == Spooled(large, SIDECAR)
    files.remove(f"{1:032x}")
    assert segments(tmp_path, "here") == [second, last]
    files.remove(f"{4:032x}")
    assert last.exists(), "it is appended to"
    files.write(ID, BODY, SIDECAR)
    assert segments(tmp_path, "here") == [second, last]


def test_a_process_that_leaves_nothing_leaves_no_folder(tmp_path: Path) -> None:
    files = spool(tmp_path, "here")
    files.write(ID, BODY, SIDECAR)
    files.remove(ID)
    files.close()
    assert list((tmp_path / SPOOL).iterdir()) == []


def test_what_was_inherited_is_kept_as_ones_own_is(tmp_path: Path) -> None:
    dead, heir, next_heir = spool(tmp_path, "dead"), spool(tmp_path, "heir"), spool(tmp_path, "next")
    for number in range(3):
        dead.write(f"{number:032x}", BODY, SIDECAR)
    dead.close()
    assert len(list(heir.inherit())) == 3
    heir.remove(f"{0:032x}")
    heir.sync(f"{1:032x}")
    heir.close()
    assert [result_id for result_id, _ in next_heir.inherit()] == [f"{1:032x}", f"{2:032x}"]
    for number in (1, 2):
        next_heir.remove(f"{number:032x}")
    assert segments(tmp_path, "next") == []


def test_what_cannot_be_read_when_it_is_inherited_is_told_of_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, heir = spool(tmp_path, "dead"), spool(tmp_path, "heir")
    dead.write(ID, BODY, SIDECAR)
    dead.write(OTHER, BODY, SIDECAR)
    dead.close()
    pread, left = os.pread, [2]

    def failing(descriptor: int, length: int, at: int) -> bytes:
        if length == len(BODY):
            left[0] -= 1
            if left[0] == 0:
                raise OSError(errno.EIO, "Input/output error")
        return pread(descriptor, length, at)

    monkeypatch.setattr(os, "pread", failing)
    inherited = []
    with pytest.raises(OSError, match="Input/output"):
        inherited += [result_id for result_id, _ in heir.inherit()]
    assert heir.ids() == {ID, OTHER}
    assert [result_id for result_id, _ in heir.inherit()] == [OTHER]


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
    assert files.read(ID) == spool(tmp_path, "there").read(ID) == Spooled(BODY, SIDECAR)


def test_a_disk_that_takes_little_at_a_time_gets_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwritev = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, pieces, at: pwritev(fd, [b"".join(pieces)[:777]], at))
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
    """The heir's folder is looked at first, the dead one's after the move."""
    dead, heir, reader = spool(tmp_path, "dead"), spool(tmp_path, "a-heir"), spool(tmp_path, "z-reader")
    dead.write(ID, BODY, SIDECAR)
    looked_at: list[Path] = []
    scandir = os.scandir

    def look_and_move(folder: Path) -> Any:
        listed = scandir(folder)
        if Path(folder).name == "a-heir" and not looked_at:
            looked_at.append(folder)
            dead.close()
            assert len(list(heir.inherit())) == 1
        return listed

    monkeypatch.setattr(os, "scandir", look_and_move)
    assert reader.read(ID) == Spooled(BODY, SIDECAR)
    assert looked_at


def test_a_segment_that_cannot_be_read_stays_with_the_dead_and_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heir = spool(tmp_path, "heir")
    for number, name in enumerate(("d0", "d1", "d2")):
        dead = spool(tmp_path, name)
        dead.write(f"{number:032x}", BODY, SIDECAR)
        dead.close()
    scan = spool_files.scan

    def failing(descriptor: int) -> Any:
        found = scan(descriptor)
        if found[0][0].line.id == f"{1:032x}":
            raise OSError(errno.EIO, "Input/output error")
        return found

    told: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(spool_files, "scan", failing)
        with pytest.raises(OSError, match="Input/output"):
            told.extend(result_id for result_id, _ in heir.inherit())
    assert told == [f"{0:032x}", f"{2:032x}"]
    assert list(heir.inherit()) == [(f"{1:032x}", Spooled(BODY, SIDECAR))]


@pytest.mark.parametrize("damage", [b"\xff", b"-9"])
def test_a_damaged_line_ends_the_segment_and_nothing_else(tmp_path: Path, damage: bytes) -> None:
    dead, heir, reader = spool(tmp_path, "dead"), spool(tmp_path, "heir"), spool(tmp_path, "reader")
    dead.write(ID, BODY, SIDECAR)
    dead.write(OTHER, BODY, {"id": OTHER, "media_type": "image/png", "bytes": "77777"})
    (segment,) = segments(tmp_path, "dead")
    data = segment.read_bytes()
    place = data.rindex(b'"bytes":102400') + 8 if damage == b"-9" else data.rindex(b"77777")
    segment.write_bytes(data[:place] + damage + data[place + len(damage) :])
    assert reader.read(ID) == Spooled(BODY, SIDECAR)
    assert reader.read(OTHER) is None
    assert reader.ids() == {ID}
    dead.close()
    with capture_logs() as lines:
        assert [result_id for result_id, _ in heir.inherit()] == [ID]
    assert [line["log_level"] for line in lines] == ["warning"]


def test_a_result_is_found_while_its_segment_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead, heir = spool(tmp_path, "dead"), spool(tmp_path, "heir")
    dead.write(ID, BODY, SIDECAR)
    dead.close()
    rename, found = Path.rename, []

    def read_round_it(path: Path, target: Path) -> Path:
        found.append(heir.read(ID))
        moved = rename(path, target)
        found.append(heir.read(ID))
        return moved

    monkeypatch.setattr(Path, "rename", read_round_it)
    assert len(list(heir.inherit())) == 1
    assert found == [Spooled(BODY, SIDECAR)] * 2


def test_a_segment_that_cannot_be_moved_stays_with_the_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead, heir = spool(tmp_path, "dead"), spool(tmp_path, "heir")
    dead.write(ID, BODY, SIDECAR)
    dead.close()

    def full(*_: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", full)
        with pytest.raises(OSError, match="No space left"):
            list(heir.inherit())
    assert heir.read(ID) == Spooled(BODY, SIDECAR)
    assert len(list(heir.inherit())) == 1


def test_a_write_that_hangs_holds_up_neither_readers_nor_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = HangingDisk()
    files, stuck, release = spool(tmp_path, "here", disk), disk.stuck, disk.release
    files.write(ID, BODY, SIDECAR)
    release.clear()
    monkeypatch.setattr(spool_files, "_PATIENCE_S", 0.05)
    writer = threading.Thread(target=files.write, args=(OTHER, BODY, SIDECAR))
    writer.start()
    assert stuck.wait(30)
    try:
        assert files.read(ID) == Spooled(BODY, SIDECAR)
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

    monkeypatch.setattr(spool_files, "mark_deleted", full)
    with capture_logs() as lines:
        files.remove(ID)
    assert [line["result"] for line in lines] == [ID]
    assert files.read(ID) is None


def test_what_was_seen_of_anothers_segment_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = spool(tmp_path, "here"), spool(tmp_path, "there")
    for number in range(20):
        there.write(f"{number:032x}", BODY, SIDECAR)
    assert here.read("f" * 32) is None
    pread, reads = os.pread, [0]

    def counted(descriptor: int, length: int, at: int) -> bytes:
        reads[0] += 1
        return pread(descriptor, length, at)

    monkeypatch.setattr(os, "pread", counted)
    assert here.read("f" * 32) is None
    assert reads == [0]
    there.write(ID, BODY, SIDECAR)
    there.remove(f"{2:032x}")
    assert here.read(ID) == Spooled(BODY, SIDECAR)
    assert reads[0] <= 3
    assert here.read(f"{2:032x}") is None
    assert here.read(f"{3:032x}") == Spooled(BODY, SIDECAR)


def test_all_that_is_spooled_is_listed(tmp_path: Path) -> None:
    here, there = spool(tmp_path, "here"), spool(tmp_path, "there")
    here.write(ID, BODY, SIDECAR)
    there.write(OTHER, BODY, SIDECAR)
    assert here.ids() == there.ids() == {ID, OTHER}


def test_a_file_that_could_not_be_synced_is_neither_appended_to_nor_synced_again(tmp_path: Path) -> None:
    disk = FailingDisk()
    files = spool(tmp_path, "here", disk)
    files.write(ID, BODY, SIDECAR)
    disk.fail(errno.EIO, ("sync",))
    with pytest.raises(OSError, match="Input/output error"):
        files.sync(ID)
    disk.mend()
    asked = disk.asked.count("sync")
    with pytest.raises(OSError, match="Input/output error"):  # though it would succeed now
        files.sync(ID)
    assert disk.asked.count("sync") == asked
    assert files.is_suspect(ID)
    files.write(OTHER, BODY, SIDECAR)
    assert not files.is_suspect(OTHER)
    files.sync(OTHER)
    assert len(segments(tmp_path, "here")) == 2


def test_a_result_that_is_spooled_anew_counts_once_and_its_old_file_goes(tmp_path: Path) -> None:
    disk = FailingDisk()
    files, there = spool(tmp_path, "here", disk), spool(tmp_path, "there")
    files.write(ID, BODY, SIDECAR)
    disk.fail(errno.EIO, ("sync",))
    with pytest.raises(OSError, match="Input/output error"):
        files.sync(ID)
    disk.mend()
    files.write(ID, BODY, SIDECAR)
    assert [path.name for path in segments(tmp_path, "here")] == ["2.log"]
    assert files.read(ID) == there.read(ID) == Spooled(BODY, SIDECAR)
    files.remove(ID)
    assert files.read(ID) is there.read(ID) is None


def test_on_a_full_disk_room_that_saved_results_take_in_the_spool_is_used_again(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", "1m") as disk:
        files = spool(disk, "here")
        files.write(ID, bytes(500_000), SIDECAR)
        files.remove(ID)
        fill(disk)
        files.write(OTHER, bytes(400_000), SIDECAR)
        assert files.read(OTHER) == Spooled(bytes(400_000), SIDECAR)
        with pytest.raises(OSError, match="No space left"):
            files.write(ID, bytes(400_000), SIDECAR)
        assert files.read(OTHER) == Spooled(bytes(400_000), SIDECAR)
        assert files.read(ID) is None
        files.close()
        assert [result_id for result_id, _ in spool(disk, "next").inherit()] == [OTHER]
