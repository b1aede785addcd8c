"""Prepares an SQLite file as a ledger: its write-ahead log and its tables."""

from __future__ import annotations

import sqlite3
import time

_SWITCH_RETRY_S = 0.01


def use_write_ahead_log(connection: sqlite3.Connection, timeout_s: float) -> None:
    """Switch a new file to the write-ahead log; fail if a file is read-only, as SQLite opens it without an error.

    Retried for `timeout_s`, because SQLite does not wait for another process that switches the same file.

    Raises:
        sqlite3.OperationalError: the file is read-only or stays locked.
    """
    give_up_at = time.monotonic() + timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA incremental_vacuum(1)")  # needs permission to write, but writes nothing
        except sqlite3.OperationalError as error:  # noqa: PERF203 -- tried again until it works
            if "locked" not in str(error) or time.monotonic() > give_up_at:
                raise
            time.sleep(_SWITCH_RETRY_S)
        else:
            return


def create(connection: sqlite3.Connection, schema: str) -> None:
    """Create tables, columns and indexes that are missing."""
    for statement in schema.split(";"):
        try:
            connection.execute(statement)
        except sqlite3.OperationalError as error:  # noqa: PERF203 -- SQLite has no IF NOT EXISTS for columns
            if "duplicate column name" not in str(error):
                raise
