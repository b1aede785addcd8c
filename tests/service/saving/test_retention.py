"""Retention: the oldest results are deleted first, image and sidecar together, and none before it is durable."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from service.saving.retention import Retention, RetentionLimits, plan_deletions
from service.saving.storage.contract import StoredObject
from service.saving.storage.disk import ResultFiles

HOUR = 3600.0
NOW = 1_000_000.0


def stored(number: int, age_s: float, size: int = 100) -> list[StoredObject]:
    name = f"00/{number:032x}"
    return [StoredObject(f"{name}.png", size - 10, NOW - age_s), StoredObject(f"{name}.json", 10, NOW - age_s + 1)]


def ids(names: list[str]) -> list[int]:
    return [int(name[3:35], 16) for name in names if name.endswith(".json")]


ENTRIES = [kept for number, age in ((3, 1.0), (1, 3 * HOUR), (2, 2 * HOUR)) for kept in stored(number, age)]


@pytest.mark.parametrize(
    ("limits", "gone"),
    [
        pytest.param(RetentionLimits(), [], id="no limits"),
        pytest.param(RetentionLimits(max_age_s=2.5 * HOUR), [1], id="age"),
        pytest.param(RetentionLimits(max_age_s=60.0), [1, 2], id="age of two"),
        pytest.param(RetentionLimits(max_bytes=300), [], id="fits"),
        pytest.param(RetentionLimits(max_bytes=299), [1], id="bytes"),
        pytest.param(RetentionLimits(max_bytes=100), [1, 2], id="bytes of two"),
        pytest.param(RetentionLimits(max_bytes=1), [1, 2, 3], id="everything"),
        pytest.param(RetentionLimits(max_age_s=2.5 * HOUR, max_bytes=199), [1, 2], id="both"),
    ],
)
def test_the_oldest_go_first(limits: RetentionLimits, gone: list[int]) -> None:
    names = plan_deletions(ENTRIES, limits, NOW)
    assert ids(names) == gone
    assert len(names) == 2 * len(gone)


@pytest.mark.parametrize(("age_s", "nbytes", "limited"), [(0, 0, False), (1, 0, True), (0, 1, True), (1, 1, True)])
def test_results_are_deleted_if_their_age_or_their_size_is_limited(age_s: float, nbytes: int, limited: bool) -> None:
    assert RetentionLimits(age_s, nbytes).is_limited == limited


def test_a_sidecar_goes_before_its_image() -> None:
    names = plan_deletions(ENTRIES, RetentionLimits(max_age_s=60.0), NOW)
    assert [name.rpartition(".")[2] for name in names] == ["json", "png"] * 2


def test_half_a_result_is_left_while_it_may_still_be_written_and_removed_when_it_cannot() -> None:
    fresh, old = stored(1, 60.0)[:1], stored(2, 2 * HOUR)[:1]
    assert plan_deletions(fresh + old, RetentionLimits(max_bytes=1), NOW) == [old[0].name]


def test_foreign_files_in_the_same_folder_are_left_alone() -> None:
    names = ["backup.tar", "00/notes.txt", "models/photos/1/model.onnx", f"01/{1:032x}.png", f"00/{1:032x}.tiff"]
    assert plan_deletions([StoredObject(name, 10**9, 0.0) for name in names], RetentionLimits(60.0, 1), NOW) == []


def test_what_is_still_in_the_spool_is_left_however_old_its_image_is() -> None:
    """Writing its sidecar may have failed for hours, and a writer may be writing both files again at present."""
    half, whole = stored(1, 2 * HOUR)[:1], stored(2, 2 * HOUR)
    spooled = {half[0].result_id, whole[0].result_id}
    assert plan_deletions(half + whole, RetentionLimits(60.0, 1), NOW, spooled) == []


def test_a_sweep_deletes_on_disk_what_is_too_old_and_one_process_sweeps_at_a_time(tmp_path: Path) -> None:
    files = ResultFiles(tmp_path)
    files.prepare()
    for number in (1, 2):
        files.write(b"image", {"id": f"{number:032x}", "media_type": "image/png"})
    for path in (tmp_path / "00").glob(f"{1:032x}.*"):
        os.utime(path, (1.0, 1.0))
    limits = RetentionLimits(max_age_s=HOUR)
    now = (tmp_path / "00" / f"{2:032x}.png").stat().st_mtime
    counts: list[int] = []

    class Nested(ResultFiles):
        def entries(self):  # type: ignore[no-untyped-def] # as the base's
            counts.append(Retention(files, tmp_path / "lock", limits, lambda: now, set).delete_excess())
            return super().entries()

    assert Retention(Nested(tmp_path), tmp_path / "lock", limits, lambda: now, set).delete_excess() == 2
    assert counts == [0]
    assert files.read(f"{1:032x}") is None
    assert files.read(f"{2:032x}") == (b"image", "image/png")
    assert Retention(files, tmp_path / "lock", limits, lambda: now, set).delete_excess() == 0


class Stuck(ResultFiles):
    """Storage that refuses to delete the results in some folders, as if it might not write them."""

    folders: tuple[str, ...] = ()
    asked: int = 0

    def delete(self, name: str) -> None:
        self.asked += 1
        if name[:2] in self.folders:
            raise PermissionError(name)
        super().delete(name)


def old_results(tmp_path: Path) -> Stuck:
    """Store results 1 to 8, of which 1 is the oldest, each in a folder of its own."""
    files = Stuck(tmp_path)
    files.prepare()
    for number in range(1, 9):
        result_id = f"{number:02}" + "0" * 30
        files.write(b"image", {"id": result_id, "media_type": "image/png"})
        for suffix in ("png", "json"):
            os.utime(tmp_path / f"{number:02}/{result_id}.{suffix}", (number, number))
    return files


def left(tmp_path: Path) -> list[str]:
    return sorted(path.name[:2] for path in tmp_path.glob("??/*.json"))


@pytest.mark.parametrize("stuck", [("01",), ("04", "06"), ("01", "02", "03", "04")])
def test_results_that_cannot_be_deleted_do_not_stop_the_others(tmp_path: Path, stuck: tuple[str, ...]) -> None:
    files, forgotten = old_results(tmp_path), set[str]()
    files.folders = stuck
    retention = Retention(files, tmp_path / "lock", RetentionLimits(max_age_s=1.0), lambda: HOUR, set, forgotten.update)
    for _ in range(3):
        with pytest.raises(PermissionError):
            retention.delete_excess()
    assert left(tmp_path) == sorted(stuck)
    assert len(list(tmp_path.glob("??/*.png"))) == len(stuck), "a sidecar always has its image"
    assert sorted(one[:2] for one in forgotten) == [f"{n:02}" for n in range(1, 9) if f"{n:02}" not in stuck]
    files.folders = ()
    retention.delete_excess()
    assert left(tmp_path) == []


def test_each_result_that_could_not_be_deleted_has_its_turn(tmp_path: Path) -> None:
    files = old_results(tmp_path)
    retention = Retention(files, tmp_path / "lock", RetentionLimits(max_age_s=1.0), lambda: HOUR, set)
    for stuck in (("01", "02", "03", "04"), ("01", "02", "03")):  # 04 once, the others for ever
        files.folders = stuck
        for _ in range(3):
            with pytest.raises(PermissionError):
                retention.delete_excess()
    assert left(tmp_path) == ["01", "02", "03"]


def test_a_sweep_ends_soon_if_nothing_can_be_deleted(tmp_path: Path) -> None:
    files = old_results(tmp_path)
    files.folders = tuple(f"{number:02}" for number in range(1, 9))
    with pytest.raises(PermissionError):
        Retention(files, tmp_path / "lock", RetentionLimits(max_age_s=1.0), lambda: HOUR, set).delete_excess()
    assert files.asked <= 3
