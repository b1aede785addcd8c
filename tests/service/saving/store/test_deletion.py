"""Results that are deleted while a writer of the same process saves them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from service.core.errors import NotReady
from service.ledger.contract import Transaction
from service.ledger.sqlite_file import LEDGER_FILE, SqliteFile
from service.saving import index_table
from service.saving.index import ResultIndex
from service.saving.local_disk.disk_state import DiskState
from service.saving.result_finder import ResultFinder
from service.saving.results import StoredResult
from service.saving.spool.files import SpoolFiles
from service.saving.spool.process_folder import SpoolOwner
from service.saving.spool.segment import SpooledResult
from service.saving.spool_safeguard import SpoolSafeguard
from service.saving.storage.disk import ResultFiles
from service.saving.store import ResultStore
from service.saving.write_queue import UnsavedResult
from tests.fakes.captured_logs import capture_logs
from tests.service.saving.store.slow_storage import (
    Counts,
    Elsewhere,
    SlowFiles,
    files_directory,
    open_store,
    put,
    result,
)
from tests.serving.waiting import wait_until

T = TypeVar("T")
ID, OTHER = f"{1:032x}", f"{2:032x}"


def names(root: Path) -> set[str]:
    return {path.name for path in root.glob("??/*")}


def put_together(store: ResultStore, *results: StoredResult) -> None:
    """Put results that a writer takes as one group: it waits for those for which space is reserved."""
    for one, space in [(one, store.reserve(len(one.body))) for one in results]:
        store.put(space, one)


@pytest.mark.parametrize("group", [1, 2])
def test_what_is_deleted_while_it_is_written_is_removed_by_its_writer(tmp_path: Path, group: int) -> None:
    files = SlowFiles(tmp_path, group)
    files.prepare()
    with open_store(files, threads=1) as store:
        put(store, *(result(number) for number in range(1, group + 1)))
        wait_until(lambda: files.tries == 1 or files.groups)
        store.index.bury(ID, "")
        store.remove(ID)  # before anything is stored, as the writer waits
        files.gate.set()
        assert store.flush(30) == 0
        assert store.get(ID) is None
    assert names(tmp_path) == ({f"{OTHER}.png", f"{OTHER}.json"} if group == 2 else set())


def test_several_of_a_group_that_are_deleted_while_it_is_written_are_removed(tmp_path: Path) -> None:
    files = SlowFiles(tmp_path, 3)
    files.prepare()
    with open_store(files, threads=1, gather_s=30.0) as store:
        put_together(store, result(1), result(2), result(3))
        wait_until(lambda: files.groups == [3])
        for one in (ID, OTHER):
            store.index.bury(one, "")
        files.gate.set()
        assert store.flush(30) == 0
    assert names(tmp_path) == {f"{3:032x}.png", f"{3:032x}.json"}


def test_what_is_deleted_before_its_writer_comes_is_not_written(files: SlowFiles) -> None:
    with open_store(files, threads=1) as store:
        put(store, result(2))
        wait_until(lambda: files.tries == 1)
        put(store, result(1))
        store.index.bury(ID, "")  # while its copy in the spool still exists
        files.gate.set()
        assert store.flush(30) == 0
        assert (files.tries, store.count_unsaved().total) == (1, 0)
        assert store.get(OTHER) is not None


def test_a_deleted_result_in_the_spool_is_not_read_nor_counted_as_lost(files: SlowFiles) -> None:
    files.error = OSError("unplugged")
    files.gate.set()
    with open_store(files, threads=1) as store:
        put(store, result(1))
        store.index.bury(ID, "")
        assert store.get(ID) is None
        assert store.sidecar(ID) is None
        assert store.count_unsaved().total == 0
        store.remove(ID)
        assert store.spooled_ids() == set(), "its copy is gone, though it cannot be saved yet"
        files.error = None
        assert store.flush(30) == 0


def test_what_is_deleted_while_it_is_written_is_erased_from_the_spool_too(tmp_path: Path) -> None:
    files = SlowFiles(tmp_path)
    files.prepare()
    with open_store(files, threads=1) as store:
        put(store, result(1, b"secret"), result(2))
        wait_until(lambda: files.tries == 1)
        store.index.bury(ID, "")  # by a process that was killed before it removed any copy
        files.gate.set()
        assert store.flush(30) == 0
        assert [path for path in tmp_path.rglob("*.log") if b"secret" in path.read_bytes()] == []


class Unreachable(Elsewhere):
    """A bucket that cannot be reached."""

    def delete(self, name: str) -> None:
        raise OSError(name)


def test_the_spool_gets_its_space_back_while_the_bucket_cannot_be_reached(tmp_path: Path) -> None:
    files = Unreachable(tmp_path)
    files.prepare()
    files.error = OSError("unplugged")
    files.gate.set()
    with open_store(files, threads=1) as store:
        put(store, result(1, b"secret"))
        store.index.bury(ID, "")
        with pytest.raises(OSError, match=ID):
            store.remove(ID)
        assert store.spooled_ids() == set()
        assert [path for path in tmp_path.rglob("*.log") if b"secret" in path.read_bytes()] == []


class Watched(SqliteFile):
    """A ledger that notes which results are in the spool each time that a saved one is looked up."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / LEDGER_FILE, [index_table.SCHEMA])
        self.storage = ResultFiles(folder)
        self.spooled: Callable[[], set[str]] = set
        self.seen: list[set[str]] = []

    def read(self, work: Callable[[Transaction], T]) -> T:
        if self.storage.read_sidecar(ID) is not None:
            self.seen.append(self.spooled())
        return super().read(work)


def test_a_result_stays_in_the_spool_until_it_is_known_that_it_was_not_deleted(tmp_path: Path) -> None:
    """If its process is killed before that, another one takes it up and removes it."""
    files, ledger = ResultFiles(tmp_path), Watched(tmp_path)
    files.prepare()
    with open_store(files, ledger=ledger, threads=1) as store:
        ledger.spooled = store.spooled_ids
        put(store, result(1))
        assert store.flush(30) == 0
    assert ledger.seen == [{ID}]


class DeletedMeanwhile(ResultFiles):
    """Storage whose lookup finds nothing because another process deletes the result meanwhile."""

    index: ResultIndex

    def read_sidecar(self, result_id: str) -> dict[str, Any] | None:
        self.index.bury(result_id, "")
        return super().read_sidecar(result_id)


def test_a_result_that_is_deleted_while_its_writer_looks_for_it_is_not_lost(tmp_path: Path) -> None:
    files = DeletedMeanwhile(tmp_path)
    files.prepare()
    with open_store(files) as store:
        files.index = store.index
        finder = ResultFinder({}, SpoolFiles(SpoolOwner(tmp_path, lambda: "reader")), files, store.index)
        assert finder.spooled_and_lost([UnsavedResult(ID, 1, 0.0)]) == ([], [])


class UnfinishedFileRemoved(ResultFiles):
    """Storage whose first two writes of a group fail after some files, as deletions remove unfinished ones."""

    index: ResultIndex
    max_group_size = 3
    tries = 0

    def write_all(self, results: Sequence[tuple[bytes, dict[str, Any]]]) -> None:
        self.tries += 1
        super().write_all(results)
        if self.tries <= 2:
            self.index.bury(f"{self.tries:032x}", "")
            raise FileNotFoundError(self.tries)


def test_deletions_in_mid_write_are_no_failure_to_save_the_others(tmp_path: Path) -> None:
    files = UnfinishedFileRemoved(tmp_path)
    files.prepare()
    with capture_logs() as lines, open_store(files, threads=1, gather_s=30.0) as store:
        files.index = store.index
        put_together(store, result(1), result(2), result(3))
        assert store.flush(30) == 0
        assert [store.get(f"{number:032x}") is None for number in (1, 2, 3)] == [True, True, False]
    assert [line["event"] for line in lines if line["log_level"] == "error"] == []
    assert names(tmp_path) == {f"{3:032x}.png", f"{3:032x}.json"}


class FileNeverThere(ResultFiles):
    """Storage that can write nothing, for a reason that no deletion is."""

    def write_all(self, results: Sequence[tuple[bytes, dict[str, Any]]]) -> None:
        raise FileNotFoundError(len(results))


def test_a_file_that_no_deletion_has_removed_is_a_failure(tmp_path: Path) -> None:
    observer, files = Counts(), FileNeverThere(tmp_path)
    files.prepare()
    with open_store(files, threads=1, observer=observer) as store:
        put(store, result(1))
        store.index.bury(OTHER, "")
        wait_until(lambda: observer.failures)


def test_a_deleted_result_is_not_spooled_again_from_memory(tmp_path: Path) -> None:
    files = ResultFiles(tmp_path)
    files.prepare()
    with open_store(files) as store:
        owner = SpoolOwner(tmp_path, lambda: "writer")
        owner.create()
        spool_files = SpoolFiles(owner)
        safeguard = SpoolSafeguard(spool_files, files, store.disk, store.index)
        sidecar = {"id": ID, "media_type": "image/png"}
        waiting = UnsavedResult(ID, 5, 0.0, in_memory=SpooledResult(b"image", sidecar))
        store.index.bury(ID, "")
        safeguard.secure_copies([waiting], [waiting])
        assert spool_files.ids() == set()
        spool_files.close()


class Unreadable(SqliteFile):
    """A ledger that cannot be read now."""

    def read(self, work: Callable[[Transaction], T]) -> T:
        raise NotReady(f"{work} is not run")


def test_results_are_spooled_again_from_memory_and_counted_while_the_ledger_cannot_be_read(tmp_path: Path) -> None:
    files, owner = ResultFiles(tmp_path), SpoolOwner(tmp_path, lambda: "writer")
    files.prepare()
    owner.create()
    spool_files, index = SpoolFiles(owner), ResultIndex(Unreadable(tmp_path / LEDGER_FILE, []), lambda: 0.0)
    safeguard = SpoolSafeguard(spool_files, files, DiskState(tmp_path), index)
    waiting = UnsavedResult(ID, 5, 0.0, in_memory=SpooledResult(b"image", {"id": ID, "media_type": "image/png"}))
    safeguard.secure_copies([waiting], [waiting])
    assert spool_files.ids() == {ID}
    assert safeguard.count_unsaved([waiting], 0).spooled == 1
    spool_files.close()


def test_unfinished_files_of_a_killed_process_go_too(tmp_path: Path) -> None:
    files = ResultFiles(tmp_path)
    files.prepare()
    sidecar: dict[str, Any] = {"id": ID, "media_type": "image/png"}
    files.write(b"image", sidecar)
    (tmp_path / ".incoming" / f"{ID}.png").write_bytes(b"image")
    files.remove(ID)
    files.remove(ID)
    assert [path for path in tmp_path.rglob("*") if ID in path.name] == []
    assert files_directory(files) == tmp_path
