"""Results that other processes read, leave behind and inherit."""

from __future__ import annotations

import threading
from pathlib import Path

from service.saving.storage.disk import ResultFiles
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
