"""The state of the disk: a failed write marks it as unwritable, and a synced write as writable again."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from service.core.errors import NotReady
from service.saving.local_disk.disk_state import INCOMING, DiskState
from tests.fakes.captured_logs import capture_logs
from tests.fakes.clock import Clock
from tests.fakes.disk import SYNCS, WRITES, FailingDisk, fill, tmpfs

FULL = OSError(errno.ENOSPC, "No space left on device")


def refusal(state: DiskState) -> NotReady:
    with pytest.raises(NotReady) as refused:
        state.refuse_if_failing()
    return refused.value


def test_a_disk_that_nothing_failed_on_is_not_tried(tmp_path: Path) -> None:
    disk = FailingDisk()
    state = DiskState(tmp_path, disk=disk)
    state.refuse_if_failing()
    assert not state.probe_if_suspected()
    assert (state.failure_reason, disk.asked) == ("", [])


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("at", [WRITES, SYNCS])
def test_saving_is_refused_from_the_first_failure_until_the_disk_takes_a_synced_write(
    tmp_path: Path, code: int, at: tuple[str, ...]
) -> None:
    disk, clock = FailingDisk(), Clock()
    state = DiskState(tmp_path, disk=disk, now=clock)
    disk.fail(code, at)
    with capture_logs() as lines:
        told = state.record_failure(OSError(code, "why"), 1000)
        assert (told.status, told.code, told.retry_after_s) == (503, "storage_unavailable", 1.0)
        clock.now += 20.0
        assert not state.probe_if_suspected()
        assert refusal(state).retry_after_s == 20.0
        clock.now += 100.0
        assert refusal(state).retry_after_s == 60.0
        disk.mend()
        assert state.probe_if_suspected()
    state.refuse_if_failing()
    assert not state.probe_if_suspected()
    assert [line["log_level"] for line in lines] == ["error", "info"], "one line for each turn"
    assert list((tmp_path / INCOMING).iterdir()) == []


def test_a_failure_that_was_not_the_disks_fault_refuses_no_request(tmp_path: Path) -> None:
    disk = FailingDisk()
    state = DiskState(tmp_path, disk=disk)
    state.suspect_failure(100)
    state.refuse_if_failing()
    assert not state.probe_if_suspected()
    assert "write" in disk.asked
    state.refuse_if_failing()


def test_a_disk_that_is_doubted_and_fails_is_refused(tmp_path: Path) -> None:
    disk = FailingDisk()
    state = DiskState(tmp_path, disk=disk)
    disk.fail(errno.EIO, SYNCS)
    state.suspect_failure(100)
    assert not state.probe_if_suspected()
    assert state.failure_reason == "Input/output error"


def test_a_disk_that_reports_that_it_is_full_refuses_requests_before_a_write_fails(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", "1m") as folder:
        state = DiskState(folder)
        assert not state.probe_if_suspected()
        filler = fill(folder)
        assert not state.probe_if_suspected()
        assert "No space left" in refusal(state).args[0]
        filler.unlink()
        assert state.probe_if_suspected()
        state.refuse_if_failing()


def test_a_disk_has_to_have_room_for_what_it_did_not_take(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", "1m") as folder:
        state = DiskState(folder)
        state.record_failure(FULL, 2**20)
        assert not state.probe_if_suspected()
        assert state.failure_reason


def test_a_spool_on_another_file_system_has_to_take_what_it_did_not_take(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "results", "4m") as folder, tmpfs(folder / ".spool", "1m") as spool:
        state = DiskState(folder, spool=spool)
        filler = fill(spool)
        state.record_failure(FULL, 300_000)
        assert not state.probe_if_suspected(), "the results' file system, which has space, does not decide"
        os.truncate(filler, filler.stat().st_size - 200_000)
        assert not state.probe_if_suspected()
        os.truncate(filler, filler.stat().st_size - 200_000)
        assert state.probe_if_suspected()
        assert list(spool.iterdir()) == [filler]


def test_a_result_that_never_fits_into_the_spool_does_not_stop_the_others(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "results", "16m") as folder, tmpfs(folder / ".spool", "1m") as spool:
        state = DiskState(folder, spool=spool)
        state.record_failure(FULL, 1_500_000)
        assert state.probe_if_suspected()


def test_a_spool_that_failed_nothing_is_not_tried_when_the_results_file_system_is_full(tmp_path: Path) -> None:
    """Its free space says little: that of results that were saved is only freed when it is needed."""
    with tmpfs(tmp_path / "results", "1m") as folder, tmpfs(folder / ".spool", "1m") as spool:
        state = DiskState(folder, spool=spool)
        fill(spool)
        state.suspect_failure(1000)
        assert not state.probe_if_suspected()
        assert state.failure_reason == ""


@pytest.mark.parametrize("made", [True, False])
def test_a_spool_on_the_results_file_system_needs_no_attempt_of_its_own(tmp_path: Path, made: bool) -> None:
    spool, disk = tmp_path / ".spool", FailingDisk()
    if made:
        spool.mkdir()
    state = DiskState(tmp_path, disk=disk, spool=spool)
    state.record_failure(FULL)
    assert state.probe_if_suspected()
    assert disk.asked.count("write") == 1


def test_a_removed_folder_is_not_a_failure_and_is_made_again(tmp_path: Path) -> None:
    state = DiskState(tmp_path / "results")
    assert not state.probe_if_suspected()
    state.refuse_if_failing()
    state.record_failure(FULL)
    assert state.probe_if_suspected()


def test_a_folder_that_cannot_be_made_counts_as_no_free_space(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    state = DiskState(tmp_path / "file" / "results")
    assert not state.probe_if_suspected()
    assert state.failure_reason
