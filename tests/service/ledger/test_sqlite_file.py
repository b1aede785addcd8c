"""Opening an SQLite file."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from service.core.errors import NotReady
from service.core.settings import SettingsInvalid
from service.ledger.contract import Connections, Transaction
from service.ledger.sqlite_file import SqliteFile
from tests.fakes.users import ONLY_ROOT, acting_as

SCHEMA = "CREATE TABLE IF NOT EXISTS facts (name TEXT)"


def add(ledger: Connections, name: str) -> None:
    ledger.write(lambda one: one.execute("INSERT INTO facts VALUES (?)", (name,)))


def names(ledger: Connections) -> list[str]:
    return ledger.read(lambda one: [row["name"] for row in one.execute("SELECT name FROM facts")])


def names_in(path: Path) -> list[str]:
    """Return the rows that another program finds in the file."""
    with closing(sqlite3.connect(path)) as other:
        return [name for (name,) in other.execute("SELECT name FROM facts")]


def test_processes_that_open_a_new_ledger_at_the_same_moment_all_open_it(tmp_path: Path) -> None:
    """Without retries one of six tries fails: SQLite does not wait while another process changes the journal mode."""
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
    """SQLite itself would open it and refuse only the first write, long after the server is ready."""
    with tempfile.TemporaryDirectory() as folder:  # other users cannot enter pytest's folders
        path = Path(folder) / "ledger"
        Path(folder).chmod(0o777)
        ledger = SqliteFile(path, [SCHEMA])
        ledger.open()
        ledger.close()
        path.chmod(0o644)
        with (
            acting_as(12345, 12345),
            pytest.raises(SettingsInvalid, match=r"readonly.*let the user of this server read and write"),
        ):
            SqliteFile(path, [SCHEMA]).open()


def test_a_file_that_is_no_database_is_refused_at_once_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(SettingsInvalid, match=r"file is not a database.*move it away"):
        SqliteFile(path, [SCHEMA]).open()


def test_a_locked_file_is_refused_without_advice_to_move_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.ledger.sqlite_file._BUSY_TIMEOUT_S", 0.05)
    holder = sqlite3.connect(tmp_path / "ledger", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(SettingsInvalid, match=r"locked.*stop that program"):
        SqliteFile(tmp_path / "ledger", [SCHEMA]).open()
    holder.close()


@pytest.mark.parametrize("first", ["reads", "writes"])
@pytest.mark.parametrize("now_there", ["nothing", "a copy", "another ledger"])
def test_a_ledger_whose_folder_is_moved_uses_the_file_at_its_path(tmp_path: Path, now_there: str, first: str) -> None:
    folder, archive = tmp_path / "results", tmp_path / "archive"
    folder.mkdir()
    replaced: list[str] = []
    ledger = SqliteFile(folder / "ledger", [SCHEMA], on_replaced=lambda: replaced.append("replaced"))
    ledger.open()
    add(ledger, "before")
    assert not replaced
    folder.rename(archive)
    there = []
    if now_there == "a copy":
        shutil.copytree(archive, folder)
        there = ["before"]
    elif now_there == "another ledger":
        folder.mkdir()
        other = SqliteFile(folder / "ledger", [SCHEMA])
        other.open()
        add(other, "of another process")
        there = ["of another process"]
    if first == "reads":
        assert names(ledger) == there
    add(ledger, "after")
    assert names(ledger) == names_in(folder / "ledger") == [*there, "after"]
    assert replaced
    if now_there == "another ledger":
        add(other, "as before")
        assert names(ledger)[-1] == "as before"
    ledger.close()
    assert names_in(folder / "ledger")[: len(there) + 1] == [*there, "after"]
    assert names_in(archive / "ledger") == ["before"], "what was moved is left as it was"


def move_all(path: Path, to: Path) -> None:
    """Move a ledger's files one after the other, as `mv` does."""
    for end in ("", "-shm", "-wal"):
        path.with_name(path.name + end).rename(to.with_name(to.name + end))


def opened(path: Path) -> SqliteFile:
    ledger = SqliteFile(path, [SCHEMA])
    ledger.open()
    return ledger


def test_a_ledger_that_is_moved_without_its_log_is_refused_until_the_log_is_moved_too(tmp_path: Path) -> None:
    path, old = tmp_path / "ledger", tmp_path / "old"
    ledger, of_another_process = opened(path), opened(path)
    add(ledger, "in the log")
    path.rename(old)
    for end in ("-wal", "-shm"):
        for process in (ledger, of_another_process):
            for use in (add, lambda one, _: names(one)):
                with pytest.raises(NotReady, match=rf"moved or replaced without .*ledger{end}"):
                    use(process, "refused")
            assert process.refusal.startswith("it was moved or replaced without")
        assert not path.exists(), "nothing is made at the path that the mover would take along"
        path.with_name(f"ledger{end}").rename(f"{old}{end}")
    add(ledger, "after")
    add(of_another_process, "after, too")
    assert names(ledger) == names(of_another_process) == ["after", "after, too"]
    assert not ledger.refusal
    assert names_in(old) == ["in the log"]
    ledger.close()
    of_another_process.close()


def test_a_commit_made_while_the_ledger_is_moved_is_in_the_log_left_behind(tmp_path: Path) -> None:
    path, old = tmp_path / "ledger", tmp_path / "old"
    ledger = opened(path)

    def move_and_read_meanwhile(name: str) -> None:
        def work(transaction: Transaction) -> None:
            transaction.execute("INSERT INTO facts VALUES (?)", (name,))
            path.rename(old)
            with pytest.raises(NotReady):
                names(ledger)

        ledger.write(work)

    move_and_read_meanwhile("acknowledged")
    for end in ("-wal", "-shm"):
        path.with_name(f"ledger{end}").rename(f"{old}{end}")
    assert names(ledger) == []
    assert names_in(old) == ["acknowledged"]
    ledger.close()


def test_a_ledger_moved_away_and_back_is_used_with_the_same_connections(tmp_path: Path) -> None:
    path, old = tmp_path / "ledger", tmp_path / "old"
    ledger, idle = opened(path), opened(path)
    for number in range(50):
        add(ledger if number % 2 else idle, f"{number}" * 1000)
        path.rename(old)
        with pytest.raises(NotReady):
            add(ledger, "refused")
        old.rename(path)
    assert len(names(ledger)) == len(names(idle)) == 50
    ledger.close()
    idle.close()
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_log_without_its_ledger_is_refused_at_the_start(tmp_path: Path) -> None:
    """SQLite would delete the log, and share the -shm file with processes that still use the moved ledger."""
    path, old = tmp_path / "ledger", tmp_path / "old"
    killed = opened(path)
    add(killed, "in the log")
    path.rename(old)
    with pytest.raises(SettingsInvalid, match=r"without ledger-wal and ledger-shm.*files to it, or remove them"):
        opened(path)
    for end in ("-wal", "-shm"):
        path.with_name(f"ledger{end}").rename(f"{old}{end}")
    opened(path).close()
    assert names_in(old) == ["in the log"]
    killed.close()


def test_the_log_of_a_ledger_is_not_written_into_its_replacement(tmp_path: Path) -> None:
    path, backup = tmp_path / "ledger", tmp_path / "backup"
    ledger, idle = opened(path), opened(path)
    add(ledger, "in the backup")
    with closing(sqlite3.connect(backup)) as copy, closing(sqlite3.connect(path)) as origin:
        origin.backup(copy)
    add(ledger, "in the log")
    backup.replace(path)
    for process in (ledger, idle):
        for use in (add, lambda one, _: names(one)):
            with pytest.raises(NotReady, match="moved or replaced without ledger-wal and ledger-shm"):
                use(process, "refused")
    idle.close()
    ledger.close()
    again = opened(path)
    add(again, "after")
    assert names(again) == ["in the backup", "after"]
    again.close()
    assert len(list(tmp_path.glob("ledger-wal.of-*"))) == 1, "what was in the log is kept"


def test_a_switched_symlink_leads_to_the_other_ledger(tmp_path: Path) -> None:
    path, one, two = tmp_path / "ledger", tmp_path / "one", tmp_path / "two"
    path.symlink_to(one)
    ledger = opened(path)
    add(ledger, "in one")
    path.unlink()
    path.symlink_to(two)
    add(ledger, "in two")
    assert (names(ledger), names_in(one)) == (["in two"], ["in one"])
    two.rename(one)
    with pytest.raises(NotReady, match="without two-wal and two-shm"):
        names(ledger)
    ledger.close()


def test_a_closed_ledger_is_not_reopened_by_a_late_thread(tmp_path: Path) -> None:
    ledger = opened(tmp_path / "ledger")
    ledger.close()
    (tmp_path / "ledger").unlink()
    with pytest.raises(NotReady, match="closed"):
        add(ledger, "late")
    assert list(tmp_path.iterdir()) == []


def test_long_reads_follow_a_moved_ledger_too(tmp_path: Path) -> None:
    ledger = opened(tmp_path / "ledger")
    listing = ledger.separate()
    listing.open()
    add(ledger, "before")
    assert names(listing) == ["before"]
    move_all(tmp_path / "ledger", tmp_path / "old")
    assert names(listing) == []
    add(ledger, "after")
    assert names(listing) == ["after"]
    ledger.close()
    listing.close()


def test_a_ledger_that_cannot_be_recreated_is_unavailable_until_it_can(tmp_path: Path) -> None:
    """A file is in the place of the ledger's folder, as a mistyped `mv` leaves it."""
    folder = tmp_path / "results"
    folder.mkdir()
    failures: list[str] = []
    ledger = SqliteFile(folder / "ledger", [SCHEMA], lambda: failures.append("failed"))
    ledger.open()
    folder.rename(tmp_path / "archive")
    folder.write_bytes(b"")
    for use in (add, lambda one, _: names(one)):
        with pytest.raises(NotReady, match="ledger cannot be used now"):
            use(ledger, "lost")
    assert failures == ["failed"] * 2
    folder.unlink()
    add(ledger, "after")
    assert names(ledger) == ["after"]
    ledger.close()


def test_a_replaced_ledger_is_used_only_after_on_replaced_succeeds(tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError(28, os.strerror(28))

    ledger = SqliteFile(tmp_path / "ledger", [SCHEMA], on_replaced=fail)
    ledger.open()
    move_all(tmp_path / "ledger", tmp_path / "old")
    with pytest.raises(NotReady, match="No space left"):
        add(ledger, "lost")
    assert not (tmp_path / "ledger").exists()
    ledger.close()
