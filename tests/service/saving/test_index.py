"""The index of results: rows, tombstones, and a ledger that rejects writes."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from service.core.errors import NotReady
from service.core.settings import SettingsInvalid
from service.ledger.contract import Transaction
from service.ledger.sqlite_file import LEDGER_FILE, SqliteFile
from service.saving import index_table
from service.saving.index import ResultIndex, ledger_file
from service.saving.index_table import row_of
from tests.fakes.captured_logs import capture_logs
from tests.serving.waiting import wait_until

T = TypeVar("T")
ONE, TWO = "1" * 32, "2" * 32


def sidecar(result_id: str = ONE, **fields: Any) -> dict[str, Any]:
    known = {"created": "2026-11-23T07:00:00.250+00:00", "model": "photos/1", "media_type": "image/png", "bytes": 9}
    return {"id": result_id, "owner": "1f2e3d4c", **known, **fields}


@pytest.fixture
def index(tmp_path: Path) -> Iterator[ResultIndex]:
    one = ResultIndex(ledger_file(tmp_path), lambda: 1000.0)
    one.open()
    yield one
    one.close()


def test_a_result_is_entered_when_it_is_promised_and_marked_when_it_is_saved(index: ResultIndex) -> None:
    index.announce(sidecar())
    assert index.pending
    assert index.find(ONE) is None
    index.flush()
    found = index.find(ONE)
    assert found is not None
    assert (found.owner, found.model, found.created_at, found.saved) == ("1f2e3d4c", "photos/1", 1795417200.25, False)
    assert found.facts == {"media_type": "image/png", "bytes": 9}
    index.saved([sidecar()])
    assert not index.pending
    assert index.find(ONE) == row_of(sidecar(), saved=True)


def test_what_is_saved_before_it_is_entered_is_entered_once_and_stays_saved(index: ResultIndex) -> None:
    index.announce(sidecar())
    index.saved([sidecar()])
    index.announce(sidecar())
    index.flush()
    found = index.find(ONE)
    assert found is not None
    assert found.saved


class Busy(SqliteFile):
    """A ledger that calls `before` before each write, which may raise."""

    before: Callable[[], None] = staticmethod(lambda: None)

    def write(self, work: Callable[[Transaction], T], *, synced: bool = False) -> T:
        self.before()
        return super().write(work, synced=synced)


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[tuple[ResultIndex, Busy]]:
    ledger = Busy(tmp_path / LEDGER_FILE, [index_table.SCHEMA])
    one = ResultIndex(ledger, lambda: 1000.0)
    one.open()
    yield one, ledger
    one.close()


def test_what_was_saved_while_the_ledger_rejected_writes_stays_saved(busy: tuple[ResultIndex, Busy]) -> None:
    index, ledger = busy

    def reject() -> None:
        raise NotReady("the ledger is busy")

    ledger.before = reject
    index.saved([sidecar()])  # by a writer that is faster than the thread that announces the result
    index.announce(sidecar())
    ledger.before = lambda: None
    index.flush()
    found = index.find(ONE)
    assert found is not None
    assert found.saved


def test_what_is_saved_while_it_is_entered_is_marked_as_saved(busy: tuple[ResultIndex, Busy]) -> None:
    index, ledger = busy
    writer = threading.Thread(target=index.saved, args=([sidecar()],))

    def save_meanwhile() -> None:
        ledger.before = lambda: None
        writer.start()
        wait_until(lambda: index._unwritten[ONE][1])

    ledger.before = save_meanwhile
    index.announce(sidecar())
    index.flush()
    writer.join(30)
    found = index.find(ONE)
    assert found is not None
    assert found.saved


def test_a_tombstone_outlasts_everything_that_is_entered_later(index: ResultIndex) -> None:
    index.saved([sidecar(), sidecar(TWO)])
    assert index.bury(ONE, "1f2e3d4c")
    assert not index.bury(ONE, "1f2e3d4c"), "it was deleted before"
    index.announce(sidecar())
    index.saved([sidecar()])
    index.forget([ONE])
    assert index.deleted([ONE, TWO]) == {ONE}
    found = index.find(ONE)
    assert found is not None
    assert (found.deleted, found.owner) == (True, "1f2e3d4c")


class Watched(SqliteFile):
    """A ledger that notes how each removal is committed: 1 (NORMAL) may be lost in a power failure, 2 (FULL) is not."""

    committed: tuple[int, ...] = ()

    def write_removal(self, work: Callable[[Transaction], T], *, synced: bool = False) -> T:
        def noted(ledger: Transaction) -> T:
            self.committed += tuple(ledger.execute("PRAGMA synchronous").fetchone())
            return work(ledger)

        return super().write_removal(noted, synced=synced)


def test_only_a_tombstone_is_committed_so_that_a_power_failure_keeps_it(tmp_path: Path) -> None:
    ledger = Watched(tmp_path / LEDGER_FILE, [index_table.SCHEMA])
    index = ResultIndex(ledger, lambda: 1000.0)
    index.open()
    index.bury(ONE, "")
    index.forget([TWO])
    index.bury(TWO, "")
    assert ledger.committed == (2, 1, 2)
    index.close()


def test_a_result_without_a_row_can_be_deleted(index: ResultIndex) -> None:
    assert index.bury(TWO, "")
    assert index.deleted([ONE, TWO]) == {TWO}


def test_another_process_sees_a_tombstone_at_once(index: ResultIndex, tmp_path: Path) -> None:
    other = ResultIndex(ledger_file(tmp_path), lambda: 1000.0)
    other.open()
    index.bury(ONE, "")
    assert other.deleted([ONE]) == {ONE}
    other.close()


def test_copies_are_removed_once_at_once_and_once_more_later(index: ResultIndex) -> None:
    index.bury(ONE, "")

    def left(once_before: float, twice_before: float) -> list[str]:
        return index.read(lambda ledger: index_table.to_remove(ledger, once_before, twice_before, 10))

    assert left(1000.0, 1000.0) == [], "its own request is still at it"
    assert left(1001.0, 0.0) == [ONE]
    assert index.read(index_table.unremoved) == 1
    index.write(lambda ledger: index_table.removed(ledger, ONE))
    assert index.read(index_table.unremoved) == 0
    assert left(2000.0, 1000.0) == []
    assert left(2000.0, 1001.0) == [ONE]
    index.write(lambda ledger: index_table.drop_tombstones(ledger, 2000.0))
    assert index.deleted([ONE]) == {ONE}, "not before its copies are removed for good"
    index.write(lambda ledger: index_table.removed(ledger, ONE))
    assert left(2000.0, 2000.0) == []
    index.write(lambda ledger: index_table.drop_tombstones(ledger, 2000.0))
    assert index.deleted([ONE]) == set()


def test_a_ledger_that_rejects_writes_delays_lists_and_refuses_deletions(tmp_path: Path, index: ResultIndex) -> None:
    assert isinstance(index.connections, SqliteFile)
    index.connections._writing.connection.execute("PRAGMA query_only = 1")
    with capture_logs() as lines:
        index.saved([sidecar()])
    assert [line["results"] for line in lines] == [1]
    with pytest.raises(NotReady) as refused:
        index.bury(ONE, "")
    assert refused.value.code == "ledger_unavailable"
    assert index.deleted([ONE]) == set()
    index.connections._writing.connection.execute("PRAGMA query_only = 0")
    index.flush()
    assert index.find(ONE) == row_of(sidecar(), saved=True)


def test_a_ledger_that_cannot_be_read_is_an_error_and_not_an_answer(tmp_path: Path, index: ResultIndex) -> None:
    with closing(sqlite3.connect(tmp_path / LEDGER_FILE)) as other:
        other.execute("DROP TABLE results")
        with pytest.raises(NotReady):
            index.deleted([ONE])
        other.executescript(index_table.SCHEMA)


def test_a_file_that_is_no_ledger_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "notes").write_bytes(b"not a database, but long enough to be read as one" * 100)
    with pytest.raises(SettingsInvalid, match="move it away"):
        ResultIndex(SqliteFile(tmp_path / "notes"), lambda: 0.0).open()


@pytest.mark.parametrize("created", [None, "yesterday", 5])
def test_a_sidecar_without_a_time_counts_as_the_oldest(created: object) -> None:
    assert row_of(sidecar(created=created), saved=True).created_at == 0.0
