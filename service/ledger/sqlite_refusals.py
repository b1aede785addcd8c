"""Errors for an SQLite file that cannot be used as the ledger, with what the operator can do."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from service.core.settings import SettingsInvalid

_DISK_ERRORS = ("disk is full", "disk I/O error")
"""Messages of SQLITE_FULL and SQLITE_IOERR; CPython has their codes only from 3.11 on."""
_PERMISSION_ERRORS = ("readonly database", "unable to open")
"""Messages of SQLITE_READONLY and SQLITE_CANTOPEN."""
_LONGEST_PATH_BYTES = 504
"""Longest path of a file that SQLite opens: its limit is 512, with the suffix of a journal."""


class LedgerRefused(sqlite3.OperationalError):
    """The file is not used until it is repaired; `remedy` says how to do so while a server runs."""

    remedy: str


class LedgerLogMissing(LedgerRefused):
    """The file was moved or replaced without its log or shared memory."""

    remedy = "move these files to it, or move it back"

    def __init__(self, left: Sequence[Path]) -> None:
        super().__init__(f"it was moved or replaced without {' and '.join(path.name for path in left)}")


class LedgerOverwritten(LedgerRefused):
    """An older file was copied over the ledger while it was in use."""

    def __init__(self, path: Path) -> None:
        super().__init__("an older file was copied over it while it was in use")
        self.remedy = f"stop all servers, remove {path.name}-wal and {path.name}-shm, and copy that file again"


def is_disk_error(error: BaseException | None) -> bool:
    """Return whether SQLite's error says that the disk accepts no writes, as when it is full."""
    return isinstance(error, sqlite3.Error) and any(words in str(error) for words in _DISK_ERRORS)


def not_usable(path: Path, error: sqlite3.Error) -> SettingsInvalid:
    """Return the error for a ledger that cannot be opened; its message says what to do, which depends on the cause."""
    remedy = "move it away to start with an empty ledger"
    unwritable = path.exists() and not os.access(path, os.R_OK | os.W_OK, effective_ids=True)
    path_bytes = len(os.fsencode(os.path.realpath(path)))
    if path_bytes > _LONGEST_PATH_BYTES and "unable to open" in str(error):
        remedy = f"its path is too long: {path_bytes:,} bytes, of at most {_LONGEST_PATH_BYTES}; choose a shorter one"
    elif unwritable or any(words in str(error) for words in _PERMISSION_ERRORS):
        remedy = "let the user of this server read and write that file and its folder, or " + remedy
    elif is_disk_error(error):
        remedy = "free space on that disk, or repair it, and start again"
    elif isinstance(error, LedgerLogMissing):
        remedy = "move those files to it, or remove them to start with an empty ledger"
    elif "locked" in str(error):
        remedy = "another program keeps it locked; stop that program, and start again"
    return SettingsInvalid(f"the ledger {path} cannot be used ({error}); {remedy}")
