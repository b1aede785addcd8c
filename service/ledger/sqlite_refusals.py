"""Errors for an SQLite file that cannot be used as the ledger, with what the operator can do."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from service.core.settings import SettingsInvalid

_OF_THE_DISK = ("disk is full", "disk I/O error")
"""Messages of SQLITE_FULL and SQLITE_IOERR; CPython has their codes only from 3.11 on."""
_OF_THE_USER = ("readonly database", "unable to open")
"""Messages of SQLITE_READONLY and SQLITE_CANTOPEN."""


class Refused(sqlite3.OperationalError):
    """The file is not used until it is repaired; `way_out` says how to do so while a server runs."""

    way_out: str


class WithoutItsLog(Refused):
    """The file was moved or replaced without its log or shared memory."""

    way_out = "move these to it, or it back"

    def __init__(self, left: Sequence[Path]) -> None:
        super().__init__(f"it was moved or replaced without {' and '.join(path.name for path in left)}")


class Overwritten(Refused):
    """An older file was copied over the ledger while it was in use."""

    def __init__(self, path: Path) -> None:
        super().__init__("an older file was copied over it while it was used")
        self.way_out = f"end all servers, remove {path.name}-wal and {path.name}-shm, and copy that file again"


def not_usable(path: Path, error: sqlite3.Error) -> SettingsInvalid:
    """Return the error for a ledger that cannot be opened; its message says what to do, which depends on the cause."""
    way_out = "move it away to start with an empty one"
    unwritable = path.exists() and not os.access(path, os.R_OK | os.W_OK, effective_ids=True)
    if unwritable or any(words in str(error) for words in _OF_THE_USER):
        way_out = "let the user of this server read and write that file and its folder, or " + way_out
    elif any(words in str(error) for words in _OF_THE_DISK):
        way_out = "make room on that disk, or mend it, and start again"
    elif isinstance(error, WithoutItsLog):
        way_out = "move those to it, or remove them to start with an empty one"
    elif "locked" in str(error):
        way_out = "another program writes to it and does not end: end that one, and start again"
    return SettingsInvalid(f"the ledger {path} cannot be used ({error}); {way_out}")
