"""What is SQLite's own: how its file is opened."""

from __future__ import annotations

import sqlite3
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.core.settings import SettingsInvalid
from service.ledger.sqlite_file import SqliteFile
from tests.fakes.users import ONLY_ROOT, acting_as

SCHEMA = "CREATE TABLE IF NOT EXISTS facts (name TEXT)"


def test_processes_that_open_a_new_ledger_at_the_same_moment_all_open_it(tmp_path: Path) -> None:
    """Without patience about one of six tries fails: SQLite waits for nobody who switches the file's journal."""
    together = threading.Barrier(4)

    def open_and_close(path: Path) -> None:
        ledger = SqliteFile(path, [SCHEMA])
        together.wait(30)
        ledger.open()
        assert ledger.read(lambda reading: reading.execute("SELECT count(*) FROM facts").fetchone()[0]) == 0
        ledger.close()

    with ThreadPoolExecutor(4) as processes:
        for number in range(40):
            assert list(processes.map(open_and_close, [tmp_path / str(number)] * 4)) == [None] * 4


@ONLY_ROOT
def test_a_file_that_this_user_may_only_read_is_refused_when_it_is_opened() -> None:
    """SQLite opens it, and refuses the first change only, long after the server said that it was ready."""
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folder is closed to other users
        path = Path(folder) / "ledger"
        Path(folder).chmod(0o777)
        ledger = SqliteFile(path, [SCHEMA])
        ledger.open()
        ledger.close()
        path.chmod(0o644)
        with (
            acting_as(12345, 12345),
            pytest.raises(SettingsInvalid, match=r"readonly.*let the user of this server write"),
        ):
            SqliteFile(path, [SCHEMA]).open()


def test_a_file_that_is_no_database_is_refused_at_once_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(SettingsInvalid, match=r"file is not a database.*move it away"):
        SqliteFile(path, [SCHEMA]).open()


def test_a_file_that_another_program_keeps_locked_is_not_to_be_moved_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.ledger.sqlite_file._BUSY_TIMEOUT_S", 0.05)
    holder = sqlite3.connect(tmp_path / "ledger", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(SettingsInvalid, match=r"locked.*end that one"):
        SqliteFile(tmp_path / "ledger", [SCHEMA]).open()
    holder.close()
