"""The database: several processes use one file, and none blocks its event loop."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from service.core.errors import NotReady
from service.core.settings import SettingsInvalid
from service.ledger.database import Database
from service.ledger.sqlite_file import SqliteFile
from tests.fakes.disk import fill, tmpfs

SCHEMA = "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value INTEGER)"
ADD = """
import sqlite3, sys
for _ in range(200):
    ledger = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
    ledger.execute("BEGIN IMMEDIATE")
    ledger.execute("UPDATE facts SET value = value + 1")
    ledger.execute("COMMIT")
    ledger.close()
"""


def put(value: int):  # type: ignore[no-untyped-def] # a closure
    return lambda ledger: ledger.execute("INSERT OR REPLACE INTO facts VALUES ('one', ?)", (value,)).rowcount


def value(ledger: sqlite3.Connection) -> int | None:
    row = ledger.execute("SELECT value FROM facts").fetchone()
    return None if row is None else row["value"]


def add_in_another_process(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", ADD, str(path)])


async def test_writes_can_be_read_and_survive_a_restart(tmp_path: Path) -> None:
    with Database(SqliteFile(tmp_path / "ledger", [SCHEMA])) as ledger:
        assert await ledger.read(value) is None
        assert await ledger.write(put(7)) == 1
        assert await ledger.read(value) == 7
    with Database(SqliteFile(tmp_path / "ledger", [SCHEMA])) as ledger:
        assert await ledger.read(value) == 7


async def test_several_processes_write_without_losing_anything(tmp_path: Path) -> None:
    with Database(SqliteFile(tmp_path / "ledger", [SCHEMA])) as ledger:
        await ledger.write(put(0))
        others = [add_in_another_process(tmp_path / "ledger") for _ in range(2)]
        for _ in range(200):
            await ledger.write(lambda one: one.execute("UPDATE facts SET value = value + 1").rowcount)
        assert [await asyncio.to_thread(other.wait, 60) for other in others] == [0, 0]
        assert await ledger.read(value) == 600


async def test_a_transaction_that_fails_leaves_nothing_and_the_next_one_runs(tmp_path: Path) -> None:
    def half(ledger: sqlite3.Connection) -> None:
        put(1)(ledger)
        ledger.execute("INSERT INTO nowhere VALUES (1)")

    def broken(ledger: sqlite3.Connection) -> None:
        put(1)(ledger)
        raise RuntimeError("a bug")

    with Database(SqliteFile(tmp_path / "ledger", [SCHEMA])) as ledger:
        with pytest.raises(NotReady) as refused:
            await ledger.write(half)
        assert refused.value.code == "ledger_unavailable"
        with pytest.raises(RuntimeError, match="a bug"):
            await ledger.write(broken)
        with pytest.raises(NotReady):
            await ledger.read(lambda one: one.execute("SELECT * FROM nowhere").fetchone())
        assert await ledger.read(value) is None
        await ledger.write(put(2))
        assert await ledger.read(value) == 2


async def test_the_event_loop_runs_on_while_another_process_holds_the_file(tmp_path: Path) -> None:
    with Database(SqliteFile(tmp_path / "ledger", [SCHEMA])) as ledger:
        await ledger.write(put(1))
        holder = sqlite3.connect(tmp_path / "ledger", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        writing = ledger.write(put(2))
        assert await ledger.read(value) == 1, "readers do not wait for writers"
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert not writing.done()
        holder.execute("ROLLBACK")
        holder.close()
        assert await writing == 1


@pytest.mark.parametrize("content", [b"no database" * 1000, None])
def test_a_file_that_is_not_a_ledger_stops_the_start(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(content) if content else path.mkdir()
    with pytest.raises(SettingsInvalid, match="move it away"), Database(SqliteFile(path, [SCHEMA])):
        pass


async def test_a_full_disk_is_reported_and_earlier_writes_are_kept(tmp_path: Path) -> None:
    failures: list[str] = []
    with (
        tmpfs(tmp_path / "small", "1m") as folder,
        Database(SqliteFile(folder / "ledger", [SCHEMA], lambda: failures.append("failed"))) as ledger,
    ):
        await ledger.write(put(1))
        filler = fill(folder)
        assert failures == []
        with pytest.raises(NotReady) as refused:
            await ledger.write(put_much)
        assert refused.value.code == "ledger_unavailable"
        assert failures == ["failed"]
        assert await ledger.read(value) == 1
        filler.unlink()
        await ledger.write(put(2))
        assert await ledger.read(value) == 2


def put_much(ledger: sqlite3.Connection) -> None:
    """Write more than fits into the space left in the log's last page."""
    ledger.execute("CREATE TABLE large (text TEXT)")
    ledger.execute("INSERT INTO large VALUES (?)", ("x" * 100_000,))


def test_a_start_on_a_full_disk_says_to_free_space(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "small", "256k") as folder:
        fill(folder)
        with pytest.raises(SettingsInvalid, match="free space"), Database(SqliteFile(folder / "ledger", [SCHEMA])):
            pass


async def test_a_file_of_an_older_version_gets_the_columns_that_it_lacks(tmp_path: Path) -> None:
    newer = f"{SCHEMA}; ALTER TABLE facts ADD COLUMN unit TEXT; CREATE UNIQUE INDEX IF NOT EXISTS units ON facts (unit)"
    with Database(SqliteFile(tmp_path / "ledger", [SCHEMA])) as older:
        await older.write(put(7))
        for _ in range(2):
            with Database(SqliteFile(tmp_path / "ledger", [newer])) as ledger:
                await ledger.write(lambda one: one.execute("UPDATE facts SET unit = 'metre'"))
                assert await ledger.read(value) == 7
        await older.write(lambda one: one.execute("UPDATE facts SET value = 8"))
        assert await older.read(value) == 8
