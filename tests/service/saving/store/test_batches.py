"""Saving in batches: which results wait for each other, and the fate of a batch that fails."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from service.saving.results import StoredResult
from service.saving.spool.capacity import SpoolLimits
from service.saving.spool.files import SpoolFiles
from service.saving.storage.disk import ResultFiles
from tests.fakes.captured_logs import capture_logs
from tests.service.saving.store.slow_storage import (
    QUICK,
    ROOMY,
    AnHour,
    Counts,
    SlowFiles,
    open_store,
    put,
    result,
)
from tests.serving.waiting import wait_until


class SlowCounts(Counts):
    """An observer that delays a writer after each save."""

    def saved(self, lag_s: float) -> None:
        time.sleep(0.05)
        super().saved(lag_s)


class FailsOnce(SlowFiles):
    """A storage whose first attempt fails."""

    def write(self, body: bytes, sidecar: dict[str, Any]) -> None:
        self.error = None if self.tries else OSError(28, "No space left on device")
        super().write(body, sidecar)


def test_a_writer_that_pauses_leaves_new_results_to_the_others(tmp_path: Path) -> None:
    files, counts = FailsOnce(tmp_path), SlowCounts()
    files.gate.set()
    with open_store(files, ROOMY, threads=2, observer=counts, backoff=AnHour()) as store:
        put(store, result(1))
        # else the first writer could queue it again when the other one has seen all and waits
        wait_until(lambda: all(one.failed for one in store._backlog.all_unsaved()))
        put(store, result(2))
        wait_until(lambda: len(counts.lags_s) == 2)
        time.sleep(0.1)  # meanwhile the other writer waits again, behind the pausing one
        put(store, result(3))
        wait_until(lambda: store.pending == 0)


def test_a_result_is_saved_although_its_spool_was_damaged_since_the_promise(files: SlowFiles, tmp_path: Path) -> None:
    with open_store(files, threads=1) as store:
        put(store, result(1), result(2))
        wait_until(lambda: files.tries == 1)
        (segment,) = tmp_path.glob(".spool/*/*.log")
        segment.write_bytes(bytes(segment.stat().st_size))
        files.gate.set()
        assert store.flush(30) == 0
    assert ResultFiles(tmp_path).read(result(2).id) == (result(2).body, result(2).media_type)


def test_more_results_than_are_kept_in_memory_are_read_from_the_spool(files: SlowFiles, tmp_path: Path) -> None:
    large = [StoredResult(f"{number:032x}", bytes([number]) * (3 * 2**20), "image/png", {}) for number in range(4)]
    with open_store(files, threads=1) as store:
        put(store, *large)
        kept = [waiting.body is not None for waiting in store._backlog.all_unsaved()]
        files.gate.set()
        assert store.flush(30) == 0
        put(store, StoredResult(f"{9:032x}", bytes(8 * 2**20), "image/png", {}))
        assert store.flush(30) == 0
        assert store._backlog._kept_bytes == 0
    assert kept == [True, True, False, False]
    assert [ResultFiles(tmp_path).read(one.id) for one in large] == [(one.body, one.media_type) for one in large]


def test_results_that_wait_are_made_durable_together(tmp_path: Path) -> None:
    files, counts = SlowFiles(tmp_path, max_group_size=10), Counts()
    with open_store(files, threads=1, observer=counts) as store:
        put(store, result(0))
        wait_until(lambda: files.tries == 1)
        put(store, *(result(number) for number in range(1, 16)))
        files.gate.set()
        assert store.flush(30) == 0
    assert files.groups == [1, 10, 5]
    assert len(counts.lags_s) == 16
    assert all(ResultFiles(tmp_path).read(result(number).id) for number in range(16))
    assert list((tmp_path / ".spool").iterdir()) == [], "nothing is left in the spool"


def test_a_result_waits_for_one_that_is_promised_and_is_saved_with_it(tmp_path: Path) -> None:
    files = SlowFiles(tmp_path, max_group_size=10)
    files.gate.set()
    with open_store(files, threads=2, gather_s=60.0) as store:
        coming = store.reserve(5)
        put(store, result(0), result(1))
        store.put(coming, result(2))
        wait_until(lambda: store.pending == 0)
    assert files.groups == [3]


@pytest.mark.parametrize("how", ["time", "given back", "flush", "full"])
def test_a_result_does_not_wait_for_one_that_is_promised(tmp_path: Path, how: str) -> None:
    files = SlowFiles(tmp_path, max_group_size=2)
    files.gate.set()
    with open_store(files, threads=2, gather_s=0.05 if how == "time" else 60.0) as store:
        coming = store.reserve(5)
        put(store, result(0))
        if how == "given back":
            coming.release()
        elif how == "flush":
            assert store.flush(20) == 0
        elif how == "full":
            put(store, result(1))
        wait_until(lambda: store.pending == 0)
    assert files.groups == [2 if how == "full" else 1]


def test_results_do_not_wait_for_others_while_the_spool_refuses(tmp_path: Path) -> None:
    files = SlowFiles(tmp_path, max_group_size=10)
    files.gate.set()
    with open_store(files, SpoolLimits(max_items=5, max_bytes=2**20), threads=2, gather_s=600.0) as store:
        under_way = [store.reserve(5), store.reserve(5)]
        put(store, result(0))
        assert store.pending == 1, "two more fit: it waits for those under way"
        under_way.append(store.reserve(5))
        wait_until(lambda: store.pending == 0)
    assert files.groups == [1]


def test_results_that_failed_together_are_tried_one_by_one(tmp_path: Path) -> None:
    files, counts = SlowFiles(tmp_path, max_group_size=10), Counts()
    with open_store(files, threads=1, observer=counts, backoff=QUICK) as store:
        put(store, result(0))
        wait_until(lambda: files.tries == 1)
        put(store, *(result(number) for number in range(1, 4)))
        files.error = OSError(5, "Input/output error")
        files.gate.set()
        wait_until(lambda: counts.failures >= 2)
        files.error = None
        assert store.flush(30) == 0
    assert files.groups[:2] == [1, 3]
    assert set(files.groups[2:]) == {1}
    assert all(ResultFiles(tmp_path).read(result(number).id) for number in range(4))


def test_results_do_not_pause_for_one_that_they_failed_with(tmp_path: Path) -> None:
    files = SlowFiles(tmp_path, max_group_size=10)
    with open_store(files, threads=1, backoff=AnHour()) as store:
        put(store, result(0))
        wait_until(lambda: files.tries == 1)
        obstacle = StoredResult("ff" * 16, b"image", "image/png", {})
        (tmp_path / "ff").write_text("not a folder")
        put(store, result(1), result(2), obstacle)
        files.gate.set()
        wait_until(lambda: store.pending == 1)
        assert ResultFiles(tmp_path).read(result(1).id)
        (tmp_path / "ff").unlink()
        assert store.flush(20) == 0
    assert files.groups[1:5] == [3, 1, 1, 1]


def test_results_that_failed_together_are_each_synced_in_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def sync(_: SpoolFiles, result_id: str) -> None:
        synced.append(result_id)
        if len(synced) == 1:
            fail()

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(SpoolFiles, "sync", sync)
    files, counts = SlowFiles(tmp_path, max_group_size=10), Counts()
    with open_store(files, threads=1, observer=counts, backoff=AnHour()) as store:
        put(store, result(0))
        wait_until(lambda: files.tries == 1)
        put(store, result(1), result(2))
        monkeypatch.setattr(ResultFiles, "_publish_all", fail)
        files.gate.set()
        wait_until(lambda: len(synced) >= 2)
        assert synced[:2] == [result(1).id, result(2).id]


def test_a_durable_result_that_left_the_spool_before_a_failure_is_not_called_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove, failures = SpoolFiles.remove, [OSError(30, "Read-only file system")]

    def fail_once(files: SpoolFiles, result_id: str) -> None:
        if result_id == result(2).id and failures:
            raise failures.pop()
        remove(files, result_id)

    monkeypatch.setattr(SpoolFiles, "remove", fail_once)
    files = SlowFiles(tmp_path, max_group_size=10)
    with capture_logs() as lines, open_store(files, threads=1, backoff=QUICK) as store:
        put(store, result(0))
        wait_until(lambda: files.tries == 1)
        put(store, result(1), result(2))
        files.gate.set()
        assert store.flush(20) == 0
        assert all(store.get(result(number).id) for number in range(3))
    assert not [line for line in lines if "lost" in line["event"]]
    assert [line["event"] for line in lines if line["log_level"] == "error"] != []
