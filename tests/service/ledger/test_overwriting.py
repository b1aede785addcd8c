"""A ledger that is overwritten by an older copy while it is in use."""

from __future__ import annotations

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from service.core.errors import NotReady
from service.ledger.sqlite_file import SqliteFile

SCHEMA = "CREATE TABLE IF NOT EXISTS facts (name TEXT)"


def add(ledger: SqliteFile, name: str) -> None:
    ledger.write(lambda one: one.execute("INSERT INTO facts VALUES (?)", (name,)))


def names(ledger: SqliteFile) -> list[str]:
    return ledger.read(lambda one: [row["name"] for row in one.execute("SELECT name FROM facts")])


def checkpoint(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0


def back_up(path: Path, to: Path) -> Path:
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)
    return to


@pytest.mark.parametrize("copied", ["an older one", "half of one", "no database"])
def test_a_file_that_was_copied_over_it_is_refused_until_the_right_one_is_back(tmp_path: Path, copied: str) -> None:
    path = tmp_path / "ledger"
    ledger, other = SqliteFile(path, [SCHEMA]), SqliteFile(path, [SCHEMA])
    ledger.open()
    other.open()
    add(ledger, "before")
    older = back_up(path, tmp_path / "older")
    time.sleep(1.1)
    add(ledger, "since")
    checkpoint(path)
    assert names(ledger) == names(other) == ["before", "since"]
    newer = back_up(path, tmp_path / "newer")
    content = {"an older one": older.read_bytes(), "half of one": older.read_bytes()[:50], "no database": b"?" * 9000}
    path.write_bytes(content[copied])
    for one in (ledger, other):
        for use in (names, lambda used: add(used, "lost")):
            with pytest.raises(NotReady, match="an older file was copied over it"):
                use(one)
        assert "ledger-wal and ledger-shm, and copy that file again" in one.refusal
    shutil.copyfile(newer, path)
    assert names(ledger) == names(other) == ["before", "since"]
    add(other, "after")
    assert (names(ledger), ledger.refusal, other.refusal) == (["before", "since", "after"], "", "")
    ledger.close()
    other.close()


def test_checkpoints_of_other_processes_do_not_count_as_overwriting(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger, other = SqliteFile(path, [SCHEMA]), SqliteFile(path, [SCHEMA])
    ledger.open()
    other.open()
    end = time.monotonic() + 2.5
    written = 0
    while time.monotonic() < end:
        for one in (ledger, other):
            add(one, "x" * 2000)
        written += 2
        if written % 20 == 0:
            checkpoint(path)
        assert len(names(other)) == written
    ledger.close()
    assert len(names(other)) == written
    other.close()


def test_a_slow_checkpoint_does_not_count_as_overwriting(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = SqliteFile(path, [SCHEMA])
    ledger.open()
    add(ledger, "before")
    checkpoint(path)
    for _ in range(9):
        add(ledger, "x" * 9000)
    grown = back_up(path, tmp_path / "grown").read_bytes()
    with path.open("r+b") as file:
        file.write(grown[:4096])  # a checkpoint writes the header first, with the new number of pages
    assert path.stat().st_size < len(grown)
    assert len(names(ledger)) == 10
    add(ledger, "since")
    checkpoint(path)
    assert len(names(ledger)) == 11
    ledger.close()
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_copy_made_since_the_last_checkpoint_does_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = SqliteFile(path, [SCHEMA])
    ledger.open()
    for number in range(50):
        add(ledger, f"{number}")
    copy = back_up(path, tmp_path / "copy")
    for number in range(50, 100):
        add(ledger, f"{number}")
    shutil.copyfile(copy, path)
    add(ledger, "100")
    assert names(ledger) == [f"{number}" for number in range(101)]
    ledger.close()
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert other.execute("SELECT count(*) FROM facts").fetchone() == (101,)


def test_a_new_file_at_the_path_is_used_even_if_its_version_is_lower(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = SqliteFile(path, [SCHEMA])
    for round_number in range(3):
        ledger.open()
        for number in range(2):
            add(ledger, f"{number}")
            checkpoint(path)
            time.sleep(1.1 if not round_number else 0)
        assert names(ledger) == ["0", "1"]
        ledger.close()
        path.unlink()  # the next file may get its inode number
