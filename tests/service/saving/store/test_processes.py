"""Results that other processes read, leave behind and inherit."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from service.core.errors import NotReady
from service.saving.spool.process_folder import SPOOL
from service.saving.storage.disk import ResultFiles
from tests.fakes.captured_logs import capture_logs
from tests.service.saving.spool.segments import BODY, ID, SIDECAR, segments, spool
from tests.service.saving.store.slow_storage import ROOMY, SlowFiles, files_directory, open_store, put, result


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


def test_what_a_dead_process_left_is_in_the_index_before_it_is_saved(files: SlowFiles) -> None:
    """So that its owner finds it, and can delete it, while the storage is slow."""
    dead = spool(files_directory(files), "dead")
    dead.write(ID, BODY, SIDECAR)
    dead.close()
    with open_store(files) as heir:
        heir.index.flush()
        assert heir.index.find(ID) is not None
        assert heir.pending == 1
        files.gate.set()


def test_a_dead_process_whose_spool_cannot_be_read_keeps_no_other_from_being_inherited(tmp_path: Path) -> None:
    for name in ("dead", "unreadable", "zombie"):
        one = spool(tmp_path, name)
        one.write(f"{len(name):032x}", BODY, {**SIDECAR, "id": f"{len(name):032x}"})
        one.close()
    (segment,) = segments(tmp_path, "unreadable")
    whole = segment.rename(tmp_path / "whole")
    segment.mkdir()
    with capture_logs() as lines, open_store(ResultFiles(tmp_path)) as heir:
        assert heir.flush(20) == 0
        for length in (4, 6):
            assert heir.storage.read(f"{length:032x}") is not None
        segment.rmdir()
        whole.rename(segment)
        assert heir.inherit() == 1
        assert heir.flush(20) == 0
        assert heir.get(f"{10:032x}") is not None
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == [
        "the spool of a dead process cannot be read; retrying"
    ]


def test_what_is_stored_can_be_read_while_a_part_of_the_spool_cannot(tmp_path: Path) -> None:
    with open_store(ResultFiles(tmp_path)) as store:
        put(store, result(1))
        assert store.flush(20) == 0
        (tmp_path / SPOOL / "dead" / "1.log").mkdir(parents=True)  # as unreadable as a damaged file
        assert store.get(f"{1:032x}") == (b"image", "image/png")
        assert store.sidecar(f"{1:032x}") == store.storage.read_sidecar(f"{1:032x}")
        for read in (store.get, store.sidecar):
            with pytest.raises(NotReady):
                read(f"{2:032x}")  # which may be there


def test_a_result_that_a_dead_process_spooled_twice_is_saved_once_and_others_after_it(tmp_path: Path) -> None:
    dead = spool(tmp_path, "dead")
    dead.write(ID, BODY, SIDECAR)
    (first,) = segments(tmp_path, "dead")
    copy = first.read_bytes()
    first.unlink()
    dead.write(ID, BODY, SIDECAR)
    first.write_bytes(copy)  # as if it was killed before it marked this copy as removed
    dead.close()
    with open_store(ResultFiles(tmp_path), threads=1) as heir:
        assert heir.flush(20) == 0
        put(heir, result(2))
        assert heir.flush(20) == 0
        assert (heir.pending, heir.pending_bytes) == (0, 0)
        assert heir.get(ID) == (BODY, "image/png")
