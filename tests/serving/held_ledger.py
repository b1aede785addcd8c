"""A ledger that is locked against writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from service.ledger.sqlite_file import LEDGER_FILE


@contextmanager
def ledger_held(folder: Path) -> Iterator[None]:
    """Hold the write lock of a results folder's ledger until the block ends."""
    with closing(sqlite3.connect(folder / LEDGER_FILE, isolation_level=None, timeout=30)) as ledger:
        ledger.execute("BEGIN IMMEDIATE")
        yield
        ledger.execute("ROLLBACK")
