from __future__ import annotations

import asyncio
import errno
import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from service.core.errors import NotReady, Overloaded, ShuttingDown
from service.saving import write_queue
from service.saving.disk_io import Disk
from service.saving.disk_state import DiskState
from service.saving.results import Clock, StoredResult
from service.saving.spool.capacity import Backoff, SpoolLimits
from service.saving.spool.files import SpoolFiles
from service.saving.spool.process_folder import Owner
from service.saving.storage.disk import ResultFiles
from service.saving.store import ResultStore
from tests.fakes.disk import SYNCS, WRITES, FailingDisk

NOON = datetime(2026, 5, 1, 12, 0, tzinfo=timezone.utc)
ROOMY = SpoolLimits(max_items=1000, max_bytes=2**30)
QUICK = Backoff(first_s=0.001, longest_s=0.002)


def open_store(storage: ResultFiles, limits: SpoolLimits = ROOMY, **options: Any) -> ResultStore:
    """A store with its spool in the same folder, as the server has it."""
    spool_files = SpoolFiles(Owner(files_directory(storage), lambda: uuid4().hex))
    return ResultStore(storage, spool_files, limits, **options)


def store_on(disk: Disk, root: Path, limits: SpoolLimits = ROOMY, **options: Any) -> ResultStore:
    """A store all of whose effects are that disk's."""
    spool_files = SpoolFiles(Owner(root, lambda: uuid4().hex), disk)
    return ResultStore(ResultFiles(root, disk), spool_files, limits, disk=DiskState(root, disk=disk), **options)


class SlowFiles(ResultFiles):
    """Real files behind a gate that a test opens; counts the tries."""

    def __init__(self, directory: Path, max_group_size: int = 1) -> None:
        super().__init__(directory, max_group_size=max_group_size)
        self.most = max_group_size
        self.groups: list[int] = []
        self.gate = threading.Event()
        self.error: Exception | None = None
        self.tries = 0

    @property
    def max_group_size(self) -> int:
        return self.most  # whatever file system the tests run on

    def write(self, body: bytes, sidecar: dict[str, Any]) -> None:
        self.tries += 1
        assert self.gate.wait(30)
        if self.error:
            raise self.error
        super().write(body, sidecar)

    def write_all(self, results: Sequence[tuple[bytes, dict[str, Any]]]) -> None:
        self.groups.append(len(results))
        if len(results) > 1:
            assert self.gate.wait(30)
            if self.error:
                raise self.error
        super().write_all(results)


class Elsewhere(SlowFiles):
    """Not on the disk that the spool is on."""

    @property
    def shares_spool_disk(self) -> bool:
        return False


class Counts:
    """A SaveObserver that remembers."""

    def __init__(self) -> None:
        self.lags_s: list[float] = []
        self.failures = 0

    def saved(self, lag_s: float) -> None:
        self.lags_s.append(lag_s)

    def save_failed(self) -> None:
        self.failures += 1


class SlowCounts(Counts):
    """Keeps the writer that saved something for a while."""

    def saved(self, lag_s: float) -> None:
        time.sleep(0.05)
        super().saved(lag_s)


class AnHour(Backoff):
    """Pauses for an hour, except while someone flushes."""

    def pause_s(self, failures: int) -> float:
        return 3600.0


@pytest.fixture
def files(tmp_path: Path) -> Iterator[SlowFiles]:
    slow = SlowFiles(tmp_path)
    yield slow
    slow.gate.set()


def result(number: int, body: bytes = b"image", media_type: str = "image/png") -> StoredResult:
    return StoredResult(f"{number:032x}", body, media_type, {"model": "photos/1", "timings": {"infer": 0.01}})


def put(store: ResultStore, *results: StoredResult) -> None:
    for one in results:
        store.put(store.reserve(len(one.body)), one)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_result_is_readable_at_once_and_on_disk_after_a_flush(files: SlowFiles) -> None:
    clock = Clock(now=lambda: 7.0, wall=lambda: NOON)
    expected = {
        "id": f"{1:032x}",
        "created": "2026-05-01T12:00:00.000+00:00",
        "media_type": "image/png",
        "bytes": 5,
        "sha256": hashlib.sha256(b"image").hexdigest(),
        "model": "photos/1",
        "timings": {"infer": 0.01},
    }
    with open_store(files, ROOMY, clock=clock) as store:
        put(store, result(1))
        assert store.get(f"{1:032x}") == (b"image", "image/png")
        assert store.sidecar(f"{1:032x}") == expected
        assert (store.pending, store.pending_bytes) == (1, 5)

        files.gate.set()
        assert store.flush(20) == 0
        assert (store.pending, store.pending_bytes) == (0, 0)
        assert store.get(f"{1:032x}") == (b"image", "image/png")
        assert store.sidecar(f"{1:032x}") == expected
    assert ResultFiles(files_directory(files)).read(f"{1:032x}") == (b"image", "image/png")


def files_directory(files: ResultFiles) -> Path:
    return files._directory


def test_a_restarted_store_serves_what_an_earlier_one_saved(tmp_path: Path) -> None:
    with open_store(ResultFiles(tmp_path), ROOMY) as store:
        put(store, result(1, b"one"), result(2, b"two", "image/jpeg"))
        assert store.flush(20) == 0
    with open_store(ResultFiles(tmp_path), ROOMY) as store:
        assert store.get(f"{1:032x}") == (b"one", "image/png")
        assert store.get(f"{2:032x}") == (b"two", "image/jpeg")
        assert store.get(f"{3:032x}") is None


def test_a_full_spool_refuses_new_work_and_keeps_what_it_accepted(files: SlowFiles) -> None:
    with open_store(files, SpoolLimits(max_items=2, max_bytes=100)) as store:
        first, second = store.reserve(5), store.reserve(5)
        with pytest.raises(Overloaded) as refused:
            store.reserve(5)
        assert refused.value.code == "spool_full"
        assert refused.value.retry_after_s == 5.0

        store.put(first, result(1))
        store.put(second, result(2))
        with pytest.raises(Overloaded):
            store.reserve(5)

        files.gate.set()
        assert store.flush(20) == 0
        store.reserve(5)
        assert store.get(f"{2:032x}") == (b"image", "image/png")


def test_a_request_that_fails_gives_its_room_back_once(files: SlowFiles) -> None:
    store = open_store(files, SpoolLimits(max_items=1, max_bytes=100))
    with pytest.raises(RuntimeError, match="engine"), store.reserve(5):
        raise RuntimeError("engine")
    reservation = store.reserve(5)
    reservation.release()
    reservation.release()
    store.reserve(5)
    with pytest.raises(Overloaded):
        store.reserve(5)


def test_leaving_the_block_after_put_does_not_free_the_room_twice(files: SlowFiles) -> None:
    with open_store(files, SpoolLimits(max_items=1, max_bytes=100)) as store:
        with store.reserve(5) as reservation:
            store.put(reservation, result(1))
        with pytest.raises(Overloaded):
            store.reserve(5)
        files.gate.set()


def test_a_failing_disk_delays_results_and_loses_none(files: SlowFiles) -> None:
    files.gate.set()
    files.error = OSError(28, "No space left on device")
    counts = Counts()
    with (
        capture_logs() as lines,
        open_store(files, SpoolLimits(3, 1000), observer=counts, backoff=QUICK) as store,
    ):
        put(store, result(1), result(2), result(3))
        eventually(lambda: counts.failures >= 10)
        assert store.flush(0.01) == 3
        assert store.get(f"{2:032x}") == (b"image", "image/png")
        with pytest.raises(Overloaded):
            store.reserve(5)
        assert [line["event"] for line in lines] == ["saving failed; the spool keeps results to try again"]
        assert "No space left" in lines[0]["error"]

        files.error = None
        assert store.flush(20) == 0
        eventually(lambda: lines[-1]["event"] == "saving works again")
        failed, works = (sum(word in line["event"] for line in lines) for word in ("failed", "works"))
        assert failed == works <= 2  # a writer may have failed just before, and tell of it just after another's success
        assert len(counts.lags_s) == 3
    assert all(ResultFiles(files_directory(files)).read(f"{n:032x}") for n in (1, 2, 3))


def test_a_writer_that_pauses_leaves_new_results_to_the_others(files: SlowFiles) -> None:
    files.gate.set()
    files.error = OSError(28, "No space left on device")
    counts = SlowCounts()
    with open_store(files, ROOMY, threads=2, observer=counts, backoff=AnHour()) as store:
        put(store, result(1))
        eventually(lambda: counts.failures == 1)
        files.error = None
        put(store, result(2))
        eventually(lambda: len(counts.lags_s) == 2)
        time.sleep(0.1)  # the other waits again, behind the one that pauses
        put(store, result(3))
        eventually(lambda: store.pending == 0)


def test_results_that_wait_are_made_durable_together(tmp_path: Path) -> None:
    files, counts = SlowFiles(tmp_path, max_group_size=10), Counts()
    with open_store(files, threads=1, observer=counts) as store:
        put(store, result(0))
        eventually(lambda: files.tries == 1)
        put(store, *(result(number) for number in range(1, 16)))
        files.gate.set()
        assert store.flush(30) == 0
    assert files.groups == [1, 10, 5]
    assert len(counts.lags_s) == 16
    assert all(ResultFiles(tmp_path).read(result(number).id) for number in range(16))
    assert list((tmp_path / ".spool").iterdir()) == [], "nothing is left in the spool"


def test_a_result_waits_for_one_that_is_promised_and_is_saved_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_queue, "GATHER_S", 60.0)
    files = SlowFiles(tmp_path, max_group_size=10)
    files.gate.set()
    with open_store(files, threads=2) as store:
        coming = store.reserve(5)
        put(store, result(0), result(1))
        store.put(coming, result(2))
        eventually(lambda: store.pending == 0)
    assert files.groups == [3]


@pytest.mark.parametrize("how", ["time", "given back", "flush", "full"])
def test_a_result_does_not_wait_for_one_that_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(write_queue, "GATHER_S", 0.05 if how == "time" else 60.0)
    files = SlowFiles(tmp_path, max_group_size=2)
    files.gate.set()
    with open_store(files, threads=2) as store:
        coming = store.reserve(5)
        put(store, result(0))
        if how == "given back":
            coming.release()
        elif how == "flush":
            assert store.flush(20) == 0
        elif how == "full":
            put(store, result(1))
        eventually(lambda: store.pending == 0)
    assert files.groups == [2 if how == "full" else 1]


def test_results_that_failed_together_are_tried_one_by_one(tmp_path: Path) -> None:
    files, counts = SlowFiles(tmp_path, max_group_size=10), Counts()
    with open_store(files, threads=1, observer=counts, backoff=QUICK) as store:
        put(store, result(0))
        eventually(lambda: files.tries == 1)
        put(store, *(result(number) for number in range(1, 4)))
        files.error = OSError(5, "Input/output error")
        files.gate.set()
        eventually(lambda: counts.failures >= 2)
        files.error = None
        assert store.flush(30) == 0
    assert files.groups[:2] == [1, 3]
    assert set(files.groups[2:]) == {1}
    assert all(ResultFiles(tmp_path).read(result(number).id) for number in range(4))


def test_results_do_not_pause_for_one_that_they_failed_with(tmp_path: Path) -> None:
    files = SlowFiles(tmp_path, max_group_size=10)
    with open_store(files, threads=1, backoff=AnHour()) as store:
        put(store, result(0))
        eventually(lambda: files.tries == 1)
        obstacle = StoredResult("ff" * 16, b"image", "image/png", {})
        (tmp_path / "ff").write_text("not a folder")
        put(store, result(1), result(2), obstacle)
        files.gate.set()
        eventually(lambda: store.pending == 1)
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
        eventually(lambda: files.tries == 1)
        put(store, result(1), result(2))
        monkeypatch.setattr(ResultFiles, "_publish_all", fail)
        files.gate.set()
        eventually(lambda: len(synced) >= 2)
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
        eventually(lambda: files.tries == 1)
        put(store, result(1), result(2))
        files.gate.set()
        assert store.flush(20) == 0
        assert all(store.get(result(number).id) for number in range(3))
    assert not [line for line in lines if "lost" in line["event"]]
    assert [line["event"] for line in lines if line["log_level"] == "error"] != []


def test_an_unforeseen_error_does_not_end_the_writers(files: SlowFiles) -> None:
    files.gate.set()
    files.error = RuntimeError("a bug")
    with open_store(files, ROOMY, threads=1, backoff=QUICK) as store:
        put(store, result(1))
        eventually(lambda: files.tries >= 3)
        files.error = None
        assert store.flush(20) == 0


def test_flush_does_not_wait_for_the_pause_of_a_failing_disk(files: SlowFiles) -> None:
    files.gate.set()
    files.error = OSError("unplugged")
    counts = Counts()
    with open_store(files, ROOMY, threads=1, observer=counts, backoff=AnHour(first_s=0.001)) as store:
        put(store, result(1))
        eventually(lambda: counts.failures == 1)
        assert store.flush(0.05) == 1
        assert counts.failures > 1
        files.error = None
        assert store.flush(20) == 0


def test_flush_returns_what_is_left_when_the_time_is_up(files: SlowFiles) -> None:
    with open_store(files, ROOMY) as store:
        put(store, result(1), result(2), result(3))
        assert store.flush(0.01) == 3
        files.gate.set()
        assert store.flush(20) == 0


def test_the_age_of_the_oldest_result_and_the_lag_are_told(files: SlowFiles) -> None:
    times = {"now": 0.0}
    counts = Counts()
    with open_store(files, ROOMY, observer=counts, clock=Clock(now=lambda: times["now"])) as store:
        assert store.oldest_age_s == 0.0
        put(store, result(1))
        times["now"] = 2.0
        put(store, result(2))
        assert store.oldest_age_s == 2.0
        times["now"] = 3.0
        files.gate.set()
        assert store.flush(20) == 0
        eventually(lambda: len(counts.lags_s) == 2)
        assert sorted(counts.lags_s) == [1.0, 3.0]
        assert store.oldest_age_s == 0.0


@pytest.mark.parametrize("bad", ["../../../../etc/passwd", "x" * 32, "", "A" * 32])
def test_a_bad_id_is_no_result_and_cannot_be_stored(tmp_path: Path, bad: str) -> None:
    with open_store(ResultFiles(tmp_path), ROOMY) as store:
        assert store.get(bad) is None
        assert store.sidecar(bad) is None
        with store.reserve(1) as reservation, pytest.raises(ValueError, match="cannot store"):
            store.put(reservation, StoredResult(bad, b"", "image/png", {}))
        assert store.pending == 0


def test_what_cannot_be_saved_is_refused_at_put_and_the_reservation_stays_open(files: SlowFiles) -> None:
    with open_store(files, ROOMY) as store:
        reservation = store.reserve(5)
        with pytest.raises(ValueError, match="image/gif"):
            store.put(reservation, result(1, media_type="image/gif"))
        with pytest.raises(TypeError):
            store.put(reservation, StoredResult(f"{1:032x}", b"", "image/png", {"path": Path()}))
        store.put(reservation, result(1))
        with pytest.raises(ValueError, match="used up"):
            store.put(reservation, result(2))
        with pytest.raises(ValueError, match="not new"):
            store.put(store.reserve(5), result(1))
        files.gate.set()


def test_changing_the_sidecar_after_put_changes_nothing(files: SlowFiles) -> None:
    with open_store(files, ROOMY) as store:
        one = result(1)
        put(store, one)
        one.sidecar["timings"]["infer"] = "later"
        files.gate.set()
        assert store.flush(20) == 0
        sidecar = store.sidecar(one.id)
        assert sidecar is not None
        assert sidecar["timings"] == {"infer": 0.01}


def test_a_closed_store_accepts_nothing(tmp_path: Path) -> None:
    store = open_store(ResultFiles(tmp_path), ROOMY).start()
    reservation = store.reserve(5)
    store.close()
    store.close()
    with pytest.raises(ShuttingDown):
        store.reserve(5)
    with pytest.raises(ShuttingDown):
        store.put(reservation, result(1))


def test_a_store_that_was_never_started_can_be_closed(tmp_path: Path) -> None:
    open_store(ResultFiles(tmp_path), ROOMY).close()


def test_closing_leaves_a_hanging_disk_behind(files: SlowFiles) -> None:
    store = open_store(files, ROOMY, threads=1).start()
    put(store, result(1))
    eventually(lambda: files.tries == 1)
    begun = time.monotonic()
    store.close(timeout_s=0.05)
    assert time.monotonic() - begun < 5


def test_many_threads_store_and_read_at_once(tmp_path: Path) -> None:
    with open_store(ResultFiles(tmp_path), ROOMY, threads=3) as store:
        missing: list[int] = []

        def client(first: int) -> None:
            for number in range(first, first + 25):
                put(store, result(number, b"%d" % number))
                if store.get(f"{number:032x}") != (b"%d" % number, "image/png"):
                    missing.append(number)

        clients = [threading.Thread(target=client, args=(n * 100,)) for n in range(4)]
        for thread in clients:
            thread.start()
        for thread in clients:
            thread.join()
        assert store.flush(30) == 0
        assert missing == []
        assert len(list(tmp_path.glob("??/*.png"))) == len(list(tmp_path.glob("??/*.json"))) == 100


async def test_put_waits_for_no_slow_storage(files: SlowFiles) -> None:
    with open_store(files, ROOMY, threads=1) as store:
        begun = time.monotonic()
        put(store, *(result(n, bytes(1_000_000)) for n in range(20)))
        assert time.monotonic() - begun < 1
        body = await asyncio.to_thread(store.get, f"{3:032x}")
        assert body == (bytes(1_000_000), "image/png")
        files.gate.set()
        assert await asyncio.to_thread(store.flush, 20) == 0


def test_a_result_is_readable_through_another_process_before_it_is_durable(files: SlowFiles) -> None:
    with open_store(files) as here, open_store(ResultFiles(files_directory(files))) as there:
        put(here, result(1))
        assert there.get(f"{1:032x}") == (b"image", "image/png")
        assert there.sidecar(f"{1:032x}") == here.sidecar(f"{1:032x}")
        files.gate.set()
        assert here.flush(20) == 0
        assert there.get(f"{1:032x}") == (b"image", "image/png")


def test_what_a_store_leaves_is_saved_by_the_next(files: SlowFiles) -> None:
    store = open_store(files).start()
    put(store, result(1), result(2))
    store.close(timeout_s=0.01)
    with open_store(ResultFiles(files_directory(files))) as after:
        assert after.get(f"{2:032x}") == (b"image", "image/png")
        assert after.flush(20) == 0
        assert (after.pending, after.pending_bytes) == (0, 0)
    assert ResultFiles(files_directory(files)).read(f"{1:032x}") == (b"image", "image/png")


def test_a_living_store_takes_up_what_a_dead_one_left(files: SlowFiles) -> None:
    dying = open_store(files).start()
    with open_store(ResultFiles(files_directory(files))) as heir:
        put(dying, result(1))
        assert heir.inherit() == 0
        dying.close(timeout_s=0.01)
        assert heir.inherit() == 1
        assert heir.flush(20) == 0
        assert heir.get(f"{1:032x}") == (b"image", "image/png")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
def test_a_result_that_the_disk_does_not_take_is_refused_and_so_are_those_after_it(tmp_path: Path, code: int) -> None:
    disk = FailingDisk()
    with store_on(disk, tmp_path) as store:
        put(store, result(1))
        early = store.reserve(5)
        disk.fail(code, WRITES)
        for reservation in (early, store.reserve(5)):
            with pytest.raises(NotReady) as refused:
                store.put(reservation, result(2))
            assert refused.value.code == "storage_unavailable"
        asked = len(disk.asked)
        with pytest.raises(NotReady) as refused:
            store.reserve(5)
        assert refused.value.code == "storage_unavailable"
        assert len(disk.asked) == asked, "refused before anything is written"
        assert store.get(result(2).id) is None

        store.look()
        assert store.disk.why
        disk.mend()
        store.look()
        put(store, result(2))
        assert store.flush(20) == 0
        assert store.left().total == 0
    assert all(ResultFiles(tmp_path).read(result(number).id) for number in (1, 2))


def test_room_is_given_back_for_what_the_disk_did_not_take_whoever_leaves_first(tmp_path: Path) -> None:
    disk = FailingDisk()
    with store_on(disk, tmp_path, SpoolLimits(max_items=1, max_bytes=100)) as store:
        disk.fail(errno.ENOSPC, WRITES)
        with store.reserve(5) as reservation, pytest.raises(NotReady):
            store.put(reservation, result(1))
        disk.mend()
        store.look()
        store.reserve(5).release()
        put(store, result(1))


def test_what_cannot_be_saved_where_it_lasts_is_promised_no_more(tmp_path: Path) -> None:
    disk = FailingDisk()
    with store_on(disk, tmp_path, backoff=AnHour()) as store:
        disk.fail(errno.EIO, SYNCS)
        put(store, result(1))
        eventually(lambda: store.disk.why == "Input/output error")
        with pytest.raises(NotReady):
            store.reserve(5)
        assert store.get(result(1).id) == (b"image", "image/png")

        disk.mend()
        store.look()
        eventually(lambda: store.pending == 0)  # without the hour's pause
        put(store, result(2))
        assert store.flush(20) == 0
    assert all(ResultFiles(tmp_path).read(result(number).id) for number in (1, 2))


class NoRoomForSidecars(FailingDisk):
    """Takes images, and nothing after them, while it fails."""

    def write(self, path: Path, data: bytes) -> None:
        if path.suffix == ".json":
            self._ask("sidecar")
        super().write(path, data)


def test_an_image_without_its_sidecar_is_no_result_and_the_spool_has_it_until_both_are_there(tmp_path: Path) -> None:
    disk = NoRoomForSidecars()
    disk.fail(errno.ENOSPC, ("sidecar",))
    counts = Counts()
    with store_on(disk, tmp_path, observer=counts, backoff=QUICK) as store:
        put(store, result(1))
        eventually(lambda: counts.failures > 1)
        assert len(list(tmp_path.glob("??/*.png"))) == 1
        assert ResultFiles(tmp_path).read(result(1).id) is None
        assert SpoolFiles(Owner(tmp_path, lambda: "other")).read(result(1).id), "whoever asks, and after a kill"
        assert store.left() == (1, 0, 0)
        disk.mend()
        assert store.flush(20) == 0
    assert ResultFiles(tmp_path).read(result(1).id) == (b"image", "image/png")


def test_a_storage_elsewhere_that_fails_stops_no_promises(tmp_path: Path) -> None:
    disk, elsewhere = FailingDisk(), Elsewhere(tmp_path / "bucket")
    elsewhere.gate.set()
    elsewhere.error = OSError(errno.EIO, "unreachable")
    spool_files = SpoolFiles(Owner(tmp_path, lambda: uuid4().hex), disk)
    counts = Counts()
    with ResultStore(elsewhere, spool_files, ROOMY, observer=counts, backoff=QUICK) as store:
        put(store, result(1))
        eventually(lambda: counts.failures > 2)
        put(store, result(2))
        elsewhere.error = None
        assert store.flush(20) == 0


def test_a_spool_that_could_not_be_synced_is_relied_on_no_more(tmp_path: Path) -> None:
    """While the storage is gone, too: the results are spooled anew when the disk is well, each in another file."""
    disk, elsewhere = FailingDisk(), Elsewhere(tmp_path / "bucket")
    elsewhere.gate.set()
    elsewhere.error = OSError(errno.EIO, "unreachable")
    owner = Owner(tmp_path, lambda: uuid4().hex)
    state = DiskState(tmp_path, disk=disk)
    with ResultStore(elsewhere, SpoolFiles(owner, disk), ROOMY, disk=state, threads=1, backoff=QUICK) as store:
        disk.fail(errno.EIO, SYNCS)
        put(store, result(1))
        eventually(lambda: state.why)
        (suspect,) = owner.folder.glob("*.log")
        assert store.left() == (0, 1, 0)
        suspect.write_bytes(b"")  # as after its pages were dropped
        assert store.get(result(1).id) == (b"image", "image/png")

        disk.mend()
        eventually(lambda: not store.look() and store.left() == (1, 0, 0))
        assert suspect not in owner.folder.glob("*.log")
        assert SpoolFiles(Owner(tmp_path, lambda: "other")).read(result(1).id)
        elsewhere.error = None
        assert store.flush(20) == 0


def test_what_the_end_leaves_and_loses_is_counted(files: SlowFiles) -> None:
    store = open_store(files, threads=1).start()
    put(store, result(1), result(2), result(3))
    eventually(lambda: files.tries == 1)
    store._spooled.remove(f"{2:032x}")
    assert store.flush(0.01) == 3
    assert store.left() == (2, 0, 1)
    store.close(timeout_s=0.01)


def test_a_result_that_somebody_deleted_from_the_spool_does_not_stop_the_writers(files: SlowFiles) -> None:
    with capture_logs() as lines, open_store(files, threads=1) as store:
        put(store, result(1))
        eventually(lambda: files.tries == 1)  # the writer waits with the first in its hands
        put(store, result(2), result(3))
        store._spooled.remove(f"{2:032x}")
        files.gate.set()
        assert store.flush(20) == 0
        assert store.get(f"{2:032x}") is None
        assert store.get(f"{3:032x}") is not None
        assert store.left() == (0, 0, 1)
    assert [line["results"] for line in lines] == [[f"{2:032x}"]]
