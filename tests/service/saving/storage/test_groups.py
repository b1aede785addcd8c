"""Results saved as a group: two waits for the disk in all, and a crash leaves each result whole or absent."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from service.saving.storage.disk import ResultFiles
from tests.service.saving.storage.recording_disk import (
    BODY,
    ID,
    SIDECAR,
    ForgetfulDisk,
    PowerCut,
    RecordingDisk,
    prepared,
)

OTHER = "cd" + "0" * 30
GROUP = [(BODY, SIDECAR), (BODY[:100], {**SIDECAR, "id": OTHER})]
GROUP_STEPS = [
    f"write .incoming/{ID}.png, without waiting",
    f"rename ab/{ID}.png",
    f"write .incoming/{ID}.json, without waiting",
    f"write .incoming/{OTHER}.png, without waiting",
    f"rename cd/{OTHER}.png",
    f"write .incoming/{OTHER}.json, without waiting",
    "sync all",
    f"rename ab/{ID}.json",
    f"rename cd/{OTHER}.json",
    "sync all",
]


def test_many_results_wait_twice_for_the_device(tmp_path: Path) -> None:
    disk = RecordingDisk()
    files = prepared(tmp_path / "results", disk)
    disk.steps.clear()
    files.write_all(GROUP)
    assert disk.steps == GROUP_STEPS
    assert [files.read(ID), files.read(OTHER)] == [(BODY, "image/png"), (BODY[:100], "image/png")]


@pytest.mark.parametrize("saved_before", [0, 1, 2])
@pytest.mark.parametrize("step", range(len(GROUP_STEPS) + 4))
def test_a_sidecar_always_has_its_image_after_a_power_cut(tmp_path: Path, step: int, saved_before: int) -> None:
    """This includes the sidecar of an earlier attempt whose process was killed before it marked the result done."""
    for one in GROUP[:saved_before]:
        prepared(tmp_path).write(*one)
    disk = ForgetfulDisk(step)
    with suppress(PowerCut):
        ResultFiles(tmp_path, disk).write_all(GROUP)
    disk.forget()

    after = prepared(tmp_path)
    found = [after.read(sidecar["id"]) for _, sidecar in GROUP]
    assert all(one in (None, (body, "image/png")) for one, (body, _) in zip(found, GROUP, strict=True))
    assert None not in found[:saved_before]
    after.write_all(GROUP)
    assert [after.read(ID), after.read(OTHER)] == [(BODY, "image/png"), (BODY[:100], "image/png")]


def test_a_full_disk_is_not_filled_by_images_that_no_sidecar_follows(tmp_path: Path) -> None:
    ResultFiles(tmp_path).prepare()
    disk = RecordingDisk(stop_before=GROUP_STEPS.index("sync all"), stop=OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space left"):
        ResultFiles(tmp_path, disk).write_all(GROUP)
    assert list(tmp_path.glob("??/*")) == []


def test_one_result_alone_does_not_wait_for_what_others_write(tmp_path: Path) -> None:
    disk = RecordingDisk()
    prepared(tmp_path, disk).write_all(GROUP[:1])
    assert "sync all" not in disk.steps
    assert "sync ab" in disk.steps


@pytest.mark.parametrize("step", range(len(GROUP_STEPS)))
def test_a_crash_among_many_leaves_each_whole_or_not_there(tmp_path: Path, step: int) -> None:
    ResultFiles(tmp_path).prepare()
    with pytest.raises(PowerCut):
        ResultFiles(tmp_path, RecordingDisk(stop_before=step)).write_all(GROUP)

    after = prepared(tmp_path)
    for body, sidecar in GROUP:
        assert after.read(sidecar["id"]) in (None, (body, "image/png"))
    assert all(path.with_suffix(".png").exists() for path in tmp_path.glob("??/*.json"))
    after.write_all(GROUP)
    assert [after.read(ID), after.read(OTHER)] == [(BODY, "image/png"), (BODY[:100], "image/png")]


@pytest.mark.parametrize("step", range(len(GROUP_STEPS)))
def test_a_failure_among_many_is_reported_and_leaves_nothing_half_written(tmp_path: Path, step: int) -> None:
    ResultFiles(tmp_path).prepare()
    disk = RecordingDisk(stop_before=step, stop=OSError(28, "No space left on device"))
    files = ResultFiles(tmp_path, disk)
    with pytest.raises(OSError, match="No space left"):
        files.write_all(GROUP)
    assert list((tmp_path / ".incoming").iterdir()) == []
    disk.steps.append("past the failing step")
    for one in GROUP:
        files.write_all([one])
    assert [files.read(ID), files.read(OTHER)] == [(BODY, "image/png"), (BODY[:100], "image/png")]


def test_a_group_makes_folders_again_that_were_deleted_since_the_last_one(tmp_path: Path) -> None:
    files = prepared(tmp_path)
    files.write_all(GROUP)
    shutil.rmtree(tmp_path / "ab")
    shutil.rmtree(tmp_path / ".incoming")
    with pytest.raises(FileNotFoundError):
        files.write_all([GROUP[0], (BODY, {**SIDECAR, "id": "ab" + "1" * 30})])
    files.write_all([GROUP[0], (BODY, {**SIDECAR, "id": "ab" + "1" * 30})])
    assert files.read(ID) == (BODY, "image/png")
