"""Ledger table of stored and deleted results. Times are seconds since the epoch.

The row of a deleted result is its tombstone: it stays after all copies were removed, so that none is stored again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from service.ledger.contract import Transaction, named

SCHEMA = """
CREATE TABLE IF NOT EXISTS results (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    created_at REAL NOT NULL DEFAULT 0,
    model TEXT NOT NULL DEFAULT '',
    facts TEXT NOT NULL DEFAULT '{}',
    saved INTEGER NOT NULL DEFAULT 0,
    deleted_at REAL,
    removals INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS results_of_owner ON results (owner, created_at, id) WHERE deleted_at IS NULL;
CREATE INDEX IF NOT EXISTS results_in_spool ON results (owner, created_at, id) WHERE deleted_at IS NULL AND saved = 0;
CREATE INDEX IF NOT EXISTS results_to_remove ON results (deleted_at) WHERE deleted_at IS NOT NULL AND removals < 2;
CREATE TABLE IF NOT EXISTS results_read_in (done INTEGER PRIMARY KEY);
"""
_FACTS = ("media_type", "bytes", "width", "height")


@dataclass(frozen=True, slots=True)
class ResultRow:
    """The index's row of one result.

    owner: id of the API key for which it was made; empty if no key was required.
    facts: media_type, bytes, width and height, as far as they are known.
    deleted: whether this is a tombstone.
    """

    id: str
    owner: str
    created_at: float
    model: str
    facts: Mapping[str, Any]
    saved: bool
    deleted: bool


def row_of(sidecar: Mapping[str, Any], *, saved: bool) -> ResultRow:
    """Return the row of a result from its sidecar; a result without a valid time counts as made in 1970."""
    try:
        created_at = datetime.fromisoformat(sidecar["created"]).timestamp()
    except (KeyError, ValueError, TypeError):
        created_at = 0.0
    facts = {name: sidecar[name] for name in _FACTS if name in sidecar}
    model = str(sidecar.get("model", ""))
    return ResultRow(sidecar["id"], str(sidecar.get("owner", "")), created_at, model, facts, saved, deleted=False)


def enter(ledger: Transaction, rows: Iterable[ResultRow]) -> None:
    """Insert results, or mark existing ones as saved; tombstones stay unchanged."""
    ledger.executemany(
        "INSERT INTO results (id, owner, created_at, model, facts, saved) VALUES (?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET saved = 1 WHERE excluded.saved = 1 AND results.deleted_at IS NULL",
        [
            (row.id, row.owner, row.created_at, row.model, msgspec.json.encode(row.facts).decode(), int(row.saved))
            for row in rows
        ],
    )


def bury(ledger: Transaction, result_id: str, owner: str, now: float) -> bool:
    """Turn a result's row into its tombstone, or insert one; False if it was deleted before."""
    changed = ledger.execute(
        "INSERT INTO results (id, owner, deleted_at) VALUES (?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET deleted_at = excluded.deleted_at WHERE results.deleted_at IS NULL",
        (result_id, owner, now),
    )
    return changed.rowcount == 1


def removed(ledger: Transaction, result_id: str) -> None:
    """Count one removal of all copies of a deleted result."""
    ledger.execute("UPDATE results SET removals = removals + 1 WHERE id = ? AND deleted_at IS NOT NULL", (result_id,))


def to_remove(ledger: Transaction, once_before: float, twice_before: float, limit: int) -> list[str]:
    """Return the ids of deleted results whose copies must still be removed, earliest deleted first.

    Copies are removed twice, as a copy may be stored at the time of the first removal.

    Args:
        ledger: the transaction.
        once_before: limit of the deletion time for results whose copies were never removed.
        twice_before: limit of the deletion time for results whose copies were removed once.
        limit: largest number of results.
    """
    rows = ledger.execute(
        "SELECT id FROM results WHERE deleted_at IS NOT NULL AND removals < 2 "
        "AND deleted_at < CASE removals WHEN 0 THEN ? ELSE ? END ORDER BY deleted_at LIMIT ?",
        (once_before, twice_before, limit),
    )
    return [row["id"] for row in rows]


def any_deleted_after(ledger: Transaction, moment: float) -> bool:
    """Return whether a result whose copies must still be removed was deleted after that time."""
    found = ledger.execute(
        "SELECT 1 FROM results WHERE deleted_at IS NOT NULL AND removals < 2 AND deleted_at > ? LIMIT 1", (moment,)
    )
    return found.fetchone() is not None


def date_back(ledger: Transaction, now: float) -> None:
    """Let all deletions that seem to be in the future count as made now."""
    ledger.execute("UPDATE results SET deleted_at = ? WHERE deleted_at > ?", (now, now))


def unremoved(ledger: Transaction) -> int:
    """Return the number of deleted results whose copies were never all removed."""
    found = ledger.execute(
        "SELECT count(*) AS results FROM results WHERE deleted_at IS NOT NULL AND removals < 2 AND removals = 0"
    ).fetchone()
    return int(found["results"])


def older_are_indexed(ledger: Transaction) -> bool:
    """Return whether the results that are older than the table have been inserted."""
    return ledger.execute("SELECT 1 FROM results_read_in").fetchone() is not None


def set_older_indexed(ledger: Transaction) -> None:
    """Record that the results that are older than the table have been inserted."""
    ledger.execute("INSERT INTO results_read_in (done) VALUES (1) ON CONFLICT (done) DO NOTHING")


def deleted(ledger: Transaction, result_ids: Sequence[str]) -> set[str]:
    """Return the ids of the deleted results among `result_ids`."""
    rows = ledger.execute(
        f"SELECT id FROM results WHERE deleted_at IS NOT NULL AND id IN {named(result_ids)}",  # noqa: S608 -- values are bound
        result_ids,
    )
    return {row["id"] for row in rows}


def known(ledger: Transaction, result_ids: Sequence[str]) -> set[str]:
    """Return those of `result_ids` that have a row and are not deleted."""
    rows = ledger.execute(
        f"SELECT id FROM results WHERE deleted_at IS NULL AND id IN {named(result_ids)}",  # noqa: S608 -- values are bound
        result_ids,
    )
    return {row["id"] for row in rows}


def find(ledger: Transaction, result_id: str) -> ResultRow | None:
    """Return the row of a result, or its tombstone; None if there is neither."""
    row = ledger.execute("SELECT * FROM results WHERE id = ?", (result_id,)).fetchone()
    return None if row is None else row_from(row)


def forget(ledger: Transaction, result_ids: Iterable[str]) -> None:
    """Remove the rows of results that no longer exist; tombstones stay."""
    ledger.executemany("DELETE FROM results WHERE deleted_at IS NULL AND id = ?", [(one,) for one in result_ids])


def drop_tombstones(ledger: Transaction, deleted_before: float) -> None:
    """Remove tombstones of results that were deleted before that time and whose copies were removed twice."""
    ledger.execute("DELETE FROM results WHERE deleted_at < ? AND removals >= 2", (deleted_before,))


def row_from(row: Any) -> ResultRow:
    """Convert a row of the table."""
    return ResultRow(
        id=row["id"],
        owner=row["owner"],
        created_at=row["created_at"],
        model=row["model"],
        facts=json.loads(row["facts"]),
        saved=bool(row["saved"]),
        deleted=row["deleted_at"] is not None,
    )
