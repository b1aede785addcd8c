"""The spool's files: a result is there whole or not at all, and every process that shares the folder can read it."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from service.saving.spool import segment as segment_format
from service.saving.spool.process_folder import SPOOL
from service.saving.spool.segment import SEGMENT_BYTES, SpooledResult
from tests.fakes.captured_logs import capture_logs
from tests.fakes.disk import FailingDisk
from tests.service.saving.spool.segments import BODY, ID, OTHER, SIDECAR, segments, spool

BLOCK_BYTES = 4096
"""Size of a file system's blocks, which can only be freed whole."""


def test_what_one_process_spooled_every_process_reads(tmp_path: Path) -> None:
    here, there = spool(tmp_path, "here"), spool(tmp_path, "there")
    here.write(ID, BODY, SIDECAR)
    here.sync(ID)
    assert here.read(ID) == there.read(ID) == SpooledResult(BODY, SIDECAR)
    here.remove(ID)
    here.remove(ID)
    here.sync(ID)
    assert here.read(ID) is there.read(ID) is None


@pytest.mark.parametrize("replaced", [False, True])
def test_results_written_after_the_folder_was_moved_are_found(tmp_path: Path, replaced: bool) -> None:
    results = tmp_path / "results"
    files = spool(results, "here")
    files.write(ID, BODY, SIDECAR)
    results.rename(tmp_path / "archive")
    if replaced:
        shutil.copytree(tmp_path / "archive", results)
    files.write(OTHER, BODY, SIDECAR)
    assert files.read(OTHER) == spool(results, "there").read(OTHER) == SpooledResult(BODY, SIDECAR)
    files.close()
    assert OTHER in [result_id for result_id, _ in spool(results, "heir").inherit()]


def test_a_result_whose_bytes_changed_is_damaged(tmp_path: Path) -> None:
    files, reader = spool(tmp_path, "here"), spool(tmp_path, "there")
    files.write(ID, BODY, SIDECAR)
    files.write(OTHER, BODY, SIDECAR)
    (segment,) = segments(tmp_path, "here")
    data = segment.read_bytes()
    segment.write_bytes(data[: len(data) // 2 - 1] + b"?" + data[len(data) // 2 :])
    assert files.read(ID) is reader.read(ID) is None
    assert files.read(OTHER) == reader.read(OTHER) == SpooledResult(BODY, SIDECAR)
    files.close()
    with capture_logs() as lines:
        assert [result_id for result_id, _ in reader.inherit()] == [OTHER]
    assert [line["result"] for line in lines] == [ID]


def test_a_result_that_left_the_spool_is_found_by_no_process_though_its_bytes_remain(tmp_path: Path) -> None:
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
    assert files.read(f"{1:032x}") == SpooledResult(large, SIDECAR)
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


@pytest.mark.parametrize("damage", [b"\xff", b"-9"])
def test_a_damaged_line_ends_the_segment_and_nothing_else(tmp_path: Path, damage: bytes) -> None:
    dead, heir, reader = spool(tmp_path, "dead"), spool(tmp_path, "heir"), spool(tmp_path, "reader")
    dead.write(ID, BODY, SIDECAR)
    dead.write(OTHER, BODY, {"id": OTHER, "media_type": "image/png", "bytes": "77777"})
    (segment,) = segments(tmp_path, "dead")
    data = segment.read_bytes()
    place = data.rindex(b'"bytes":102400') + 8 if damage == b"-9" else data.rindex(b"77777")
    segment.write_bytes(data[:place] + damage + data[place + len(damage) :])
    assert reader.read(ID) == SpooledResult(BODY, SIDECAR)
    assert reader.read(OTHER) is None
    assert reader.ids() == {ID}
    dead.close()
    with capture_logs() as lines:
        assert [result_id for result_id, _ in heir.inherit()] == [ID]
    assert [line["log_level"] for line in lines] == ["warning"]


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
    assert here.read(ID) == SpooledResult(BODY, SIDECAR)
    assert reads[0] <= 3
    assert here.read(f"{2:032x}") is None
    assert here.read(f"{3:032x}") == SpooledResult(BODY, SIDECAR)


def test_all_that_is_spooled_is_listed(tmp_path: Path) -> None:
    here, there = spool(tmp_path, "here"), spool(tmp_path, "there")
    here.write(ID, BODY, SIDECAR)
    there.write(OTHER, BODY, SIDECAR)
    assert here.ids() == there.ids() == {ID, OTHER}


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
    assert files.read(ID) == there.read(ID) == SpooledResult(BODY, SIDECAR)
    files.remove(ID)
    assert files.read(ID) is there.read(ID) is None


def test_every_copy_of_a_deleted_result_is_overwritten_in_the_spools_of_all_processes(tmp_path: Path) -> None:
    here, there = spool(tmp_path, "here"), spool(tmp_path, "there")
    for files in (here, there):
        files.write(ID, BODY, SIDECAR)
        files.write(OTHER, BODY[::-1], SIDECAR)
    here.remove(ID)  # durable for some time, but its bytes are still in the segment
    here.erase(ID)
    held = [path.read_bytes() for name in ("here", "there") for path in segments(tmp_path, name)]
    assert not any(BODY in data for data in held)
    assert here.read(ID) is there.read(ID) is None
    assert here.read(OTHER) == there.read(OTHER) == SpooledResult(BODY[::-1], SIDECAR)
    here.close()
    there.close()


@pytest.mark.parametrize("damaged", ["a/1.log", "there/0.log", "z/1.log"])
def test_a_damaged_file_hides_no_result_in_other_folders_and_keeps_no_copy(tmp_path: Path, damaged: str) -> None:
    here, there = spool(tmp_path, "here"), spool(tmp_path, "there")
    there.write(ID, BODY, SIDECAR)
    (tmp_path / SPOOL / damaged).mkdir(parents=True)  # as unreadable as a damaged file
    if not damaged.startswith("there"):
        assert here.read(ID) == SpooledResult(BODY, SIDECAR)
    with pytest.raises(IsADirectoryError):
        here.read(OTHER)  # which may be there
    with pytest.raises(IsADirectoryError):
        here.erase(ID)
    assert BODY not in (tmp_path / SPOOL / "there" / "1.log").read_bytes()
    here.close()
    there.close()


def test_erasing_a_result_gives_its_space_back_and_the_others_are_inherited(tmp_path: Path) -> None:
    here, there = spool(tmp_path, "here"), spool(tmp_path, "there")
    for result_id in (ID, OTHER):
        here.write(result_id, BODY, SIDECAR)
    (segment,) = segments(tmp_path, "here")
    before = used_bytes(segment)
    there.erase(ID)
    assert before - used_bytes(segment) >= len(BODY) - 2 * BLOCK_BYTES
    here.write(f"{3:032x}", BODY, SIDECAR)
    here.close()
    assert {one: found.body for one, found in there.inherit()} == {OTHER: BODY, f"{3:032x}": BODY}


def test_the_space_of_durable_results_is_given_back_when_asked_for(tmp_path: Path) -> None:
    files = spool(tmp_path, "here")
    for result_id in (ID, OTHER):
        files.write(result_id, BODY, SIDECAR)
    (segment,) = segments(tmp_path, "here")
    files.remove(ID)
    before = used_bytes(segment)
    files.free_removed()
    assert before - used_bytes(segment) >= len(BODY) - 2 * BLOCK_BYTES
    assert files.read(OTHER) == SpooledResult(BODY, SIDECAR)


def test_where_files_cannot_have_holes_an_erased_result_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = spool(tmp_path, "here")
    files.write(ID, BODY, SIDECAR)
    monkeypatch.setattr(segment_format, "free_range", lambda *_: False)
    files.erase(ID)
    (segment,) = segments(tmp_path, "here")
    assert BODY not in segment.read_bytes()


def used_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512
