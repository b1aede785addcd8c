from __future__ import annotations

import hashlib
from datetime import datetime, timezone
from pathlib import Path

import pytest

from service.core.errors import Overloaded, ShuttingDown
from service.saving.results import Clock, StoredResult
from service.saving.spool.capacity import SpoolLimits
from service.saving.storage.disk import ResultFiles
from tests.service.saving.store.slow_storage import ROOMY, SlowFiles, files_directory, open_store, put, result

NOON = datetime(2026, 5, 1, 12, 0, tzinfo=timezone.utc)


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
        with pytest.raises(UnicodeEncodeError):
            store.put(reservation, StoredResult(f"{7:032x}", b"x", "image/png", {"model": "\ud800"}))
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
