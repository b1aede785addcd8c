"""Ledger table of finished results, by the fingerprint of their inputs. Times are seconds since the epoch."""

from __future__ import annotations

from typing import NamedTuple

from service.ledger.contract import Transaction

SCHEMA = """
CREATE TABLE IF NOT EXISTS known_results (
    fingerprint TEXT PRIMARY KEY,
    about TEXT NOT NULL,
    used_at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS known_results_use ON known_results (used_at);
"""


class Entry(NamedTuple):
    """The entry of a finished result.

    about: facts of the reply, as JSON.
    used_at: time at which the entry was inserted or last answered a request.
    """

    about: str
    used_at: float


def find(ledger: Transaction, fingerprint: str) -> Entry | None:
    """Return the entry of a result; None if it is not in the table."""
    row = ledger.execute("SELECT about, used_at FROM known_results WHERE fingerprint = ?", (fingerprint,)).fetchone()
    return None if row is None else Entry(row["about"], row["used_at"])


def insert_result(ledger: Transaction, fingerprint: str, about: str, now: float) -> None:
    """Insert a finished result, or replace the existing entry of that fingerprint."""
    ledger.execute(
        "INSERT INTO known_results (fingerprint, about, used_at) VALUES (?, ?, ?) "
        "ON CONFLICT (fingerprint) DO UPDATE SET about = excluded.about, used_at = excluded.used_at",
        (fingerprint, about, now),
    )


def record_hit(ledger: Transaction, fingerprint: str, now: float) -> None:
    """Record a cache hit."""
    ledger.execute("UPDATE known_results SET used_at = ? WHERE fingerprint = ?", (now, fingerprint))


def forget_result(ledger: Transaction, result_id: str) -> None:
    """Remove every entry that contains a result."""
    ledger.execute("DELETE FROM known_results WHERE about LIKE ?", (f'%"{result_id}"%',))


def keep_most_recent(ledger: Transaction, limit: int) -> None:
    """Keep only the `limit` most recently used results."""
    ledger.execute(
        "DELETE FROM known_results WHERE fingerprint NOT IN "
        "(SELECT fingerprint FROM known_results ORDER BY used_at DESC LIMIT ?)",
        (limit,),
    )
