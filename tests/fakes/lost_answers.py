"""A ledger whose confirmations get lost, as when a database fails between a commit and its confirmation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from service.ledger.contract import Transaction, unavailable
from service.ledger.sqlite_file import LEDGER_FILE, SqliteFile

T = TypeVar("T")


class LosesAnswers(SqliteFile):
    """A ledger whose next `lose` writes are committed and then reported as failed (NotReady).

    Args:
        root: folder of the ledger.
        committed: called after each commit, on its thread.
    """

    def __init__(self, root: Path, committed: Callable[[], object] = lambda: None) -> None:
        super().__init__(root / LEDGER_FILE)
        self.lose = 0
        self.writes = 0
        self._committed = committed

    def write(self, work: Callable[[Transaction], T], *, synced: bool = False) -> T:
        done = super().write(work, synced=synced)
        self.writes += 1
        self._committed()
        if self.lose:
            self.lose -= 1
            raise unavailable("the connection broke during the commit")
        return done
