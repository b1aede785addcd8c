"""A ledger that nobody else can write to for a while."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from service.ledger.sqlite_file import LEDGER_FILE


@contextmanager
def ledger_held(folder: Path) -> Iterator[None]:
    """Keep everybody else from writing to the ledger of a results folder."""
    with closing(sqlite3.connect(folder / LEDGER_FILE, isolation_level=None, timeout=30)) as ledger:
        ledger.execute("BEGIN IMMEDIATE")
        yield
        ledger.execute("ROLLBACK")
