from __future__ import annotations

import json
from pathlib import Path

import pytest

from service.core.errors import ServiceError
from service.core.settings import SettingsInvalid
from service.saving.storage.contract import is_result_id
from service.saving.storage.disk import ResultFiles
from tests.service.saving.storage.recording_disk import BODY, ID, SIDECAR, PowerCut, RecordingDisk, prepared


def test_the_image_is_durable_before_its_sidecar_appears(tmp_path: Path) -> None:
    disk = RecordingDisk()
    files = prepared(tmp_path / "results", disk)
    disk.steps.clear()
    files.write(BODY, SIDECAR)
    assert disk.steps == [
        "sync results",
        f"write .incoming/{ID}.png",
        f"rename ab/{ID}.png",
        "sync ab",
        f"write .incoming/{ID}.json",
        f"rename ab/{ID}.json",
        "sync ab",
    ]


@pytest.mark.parametrize("step", range(7))
def test_a_crash_at_any_step_leaves_a_whole_result_or_none(tmp_path: Path, step: int) -> None:
    ResultFiles(tmp_path).prepare()
    with pytest.raises(PowerCut):
        ResultFiles(tmp_path, RecordingDisk(stop_before=step)).write(BODY, SIDECAR)

    after = prepared(tmp_path)
    assert after.read(ID) in (None, (BODY, "image/png"))
    sidecars = list(tmp_path.glob("??/*.json"))
    assert all(path.with_suffix(".png").read_bytes() == BODY for path in sidecars)
    assert list((tmp_path / ".incoming").iterdir()) == [], "the next start removes what was half written"

    after.write(BODY, SIDECAR)
    assert after.read(ID) == (BODY, "image/png")


@pytest.mark.parametrize("step", range(7))
def test_a_failure_at_any_step_is_reported_and_can_be_repeated(tmp_path: Path, step: int) -> None:
    ResultFiles(tmp_path).prepare()
    disk = RecordingDisk(stop_before=step, stop=OSError(28, "No space left on device"))
    files = ResultFiles(tmp_path, disk)
    with pytest.raises(OSError, match="No space left"):
        files.write(BODY, SIDECAR)
    assert list((tmp_path / ".incoming").iterdir()) == [], "a full disk is not filled further by leftovers"

    disk.steps.append("past the failing step")
    files.write(BODY, SIDECAR)
    assert files.read(ID) == (BODY, "image/png")


@pytest.mark.parametrize(
    ("media_type", "suffix"), [("image/png", "png"), ("image/jpeg", "jpg"), ("image/webp", "webp")]
)
def test_files_are_sharded_by_id_and_named_by_type(tmp_path: Path, media_type: str, suffix: str) -> None:
    prepared(tmp_path).write(BODY, {**SIDECAR, "media_type": media_type})
    assert (tmp_path / "ab" / f"{ID}.{suffix}").read_bytes() == BODY
    assert json.loads((tmp_path / "ab" / f"{ID}.json").read_text("utf-8"))["model"] == "photos/1"
    assert ResultFiles(tmp_path).read(ID) == (BODY, media_type)


def test_a_shard_is_synced_into_its_parent_once(tmp_path: Path) -> None:
    disk = RecordingDisk()
    files = prepared(tmp_path / "results", disk)
    files.write(BODY, SIDECAR)
    files.write(BODY, {**SIDECAR, "id": "ab" + "1" * 30})
    assert disk.steps.count("sync results") == 1


def test_a_directory_deleted_while_the_server_runs_is_made_again(tmp_path: Path) -> None:
    files = prepared(tmp_path)
    files.write(BODY, SIDECAR)
    for path in (tmp_path / "ab").iterdir():
        path.unlink()
    (tmp_path / "ab").rmdir()
    (tmp_path / ".incoming").rmdir()
    with pytest.raises(FileNotFoundError):
        files.write(BODY, SIDECAR)
    files.write(BODY, SIDECAR)
    assert files.read(ID) == (BODY, "image/png")


def test_an_unknown_result_and_an_image_without_sidecar_are_not_found(tmp_path: Path) -> None:
    files = prepared(tmp_path)
    assert files.read(ID) is None
    files.write(BODY, SIDECAR)
    (tmp_path / "ab" / f"{ID}.json").unlink()
    assert files.read(ID) is None


def test_a_sidecar_whose_image_was_deleted_is_not_found(tmp_path: Path) -> None:
    files = prepared(tmp_path)
    files.write(BODY, SIDECAR)
    (tmp_path / "ab" / f"{ID}.png").unlink()
    assert files.read(ID) is None
    assert files.read_sidecar(ID) == SIDECAR


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"{}",
        b"[1]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b'{"media_type": []}',
        b'{"media_type": "text/html"}',
        b'{"media_type": "image/png", "width": NaN}',
        b'{"media_type": "image/png", "width": 1e999}',
        b'{"media_type": "image/png", "model": "\\ud800"}',
    ],
    ids=lambda text: text[:50].decode(errors="replace"),
)
def test_a_damaged_sidecar_is_an_error_that_says_so(tmp_path: Path, text: bytes) -> None:
    files = prepared(tmp_path)
    files.write(BODY, SIDECAR)
    (tmp_path / "ab" / f"{ID}.json").write_bytes(text)
    with pytest.raises(ServiceError, match="damaged"):
        files.read(ID)
    with pytest.raises(ServiceError, match="damaged"):
        files.read_sidecar(ID)


def test_a_result_that_cannot_be_read_is_an_error_of_the_service(tmp_path: Path) -> None:
    files = prepared(tmp_path)
    (tmp_path / "ab" / f"{ID}.json").mkdir(parents=True)
    with pytest.raises(ServiceError, match="cannot be read"):
        files.read(ID)


@pytest.mark.parametrize("bad", ["../../etc/passwd", "", "AB" + "0" * 30, "a" * 31, "a" * 33, f"{ID}\n", f"{ID}/.."])
def test_nothing_but_an_id_becomes_part_of_a_path(tmp_path: Path, bad: str) -> None:
    assert not is_result_id(bad)
    with pytest.raises(ValueError, match="32 hexadecimal digits"):
        prepared(tmp_path).read(bad)


def test_a_results_directory_that_cannot_be_made_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(
        SettingsInvalid, match=rf"{tmp_path}/file takes no new folder \(Not a directory\); choose another"
    ):
        ResultFiles(tmp_path / "file" / "results" / "deep").prepare()
    with pytest.raises(SettingsInvalid, match=rf"results_dir {tmp_path}/file is not a folder; choose another"):
        ResultFiles(tmp_path / "file").prepare()
    with pytest.raises(SettingsInvalid) as error:
        ResultFiles(Path("/proc/results")).prepare()
    assert str(error.value) == (
        "results_dir /proc/results cannot be made: /proc takes no new folder; "
        "choose another with --results-dir or RETOUCH_RESULTS_DIR"
    )


def test_a_disk_that_refuses_the_first_write_stops_the_start(tmp_path: Path) -> None:
    disk = RecordingDisk(stop_before=0, stop=OSError(30, "Read-only file system"))
    with pytest.raises(SettingsInvalid, match="Read-only file system"):
        ResultFiles(tmp_path, disk).prepare()


def test_a_file_system_that_may_ignore_the_sync_of_the_whole_gets_results_one_by_one() -> None:
    assert ResultFiles(Path("/proc"), max_group_size=10).max_group_size == 1  # like file systems in user space
