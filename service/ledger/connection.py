"""Connections to the ledger's SQLite file, and the errors of a ledger that cannot be used."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from service.core.errors import NotReady
from service.core.settings import SettingsInvalid

LEDGER_FILE = ".ledger.sqlite3"
_BUSY_TIMEOUT_S = 10.0
_MIB = 2**20
_OF_THE_DISK = ("disk is full", "disk I/O error", "readonly database")
"""Messages of SQLITE_FULL, SQLITE_IOERR and SQLITE_READONLY; CPython has their codes only from 3.11 on."""


def connect(path: Path) -> sqlite3.Connection:
    """Open a connection that any thread may use, one at a time; the file is created if it is missing.

    Raises:
        sqlite3.Error: the file cannot be opened, or is not a ledger.
    """
    connection = sqlite3.connect(
        path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    connection.row_factory = sqlite3.Row
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(f"PRAGMA journal_size_limit={16 * _MIB}")
    return connection


def not_usable(path: Path, error: sqlite3.Error) -> SettingsInvalid:
    """The error for a ledger that cannot be opened; it says what to do, which depends on the disk or its content."""
    of_the_disk = any(words in str(error) for words in _OF_THE_DISK)
    way_out = (
        "make room on that disk, or mend it, and start again"
        if of_the_disk
        else "move it away to start with an empty one"
    )
    return SettingsInvalid(f"the ledger {path} cannot be used ({error}); {way_out}")


def unavailable(error: sqlite3.Error) -> NotReady:
    """The error for a ledger that cannot be read or written now."""
    return NotReady(f"the ledger cannot be used now ({error}); try again later", code="ledger_unavailable")
