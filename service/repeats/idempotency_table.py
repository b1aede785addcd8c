"""Ledger table of idempotency keys, with its SQL statements. Times are seconds since the epoch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from service.ledger.contract import Transaction

SCHEMA = """
CREATE TABLE IF NOT EXISTS idempotency (
    name TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    owner TEXT NOT NULL,
    done INTEGER NOT NULL DEFAULT 0,
    expires_at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS idempotency_expiry ON idempotency (expires_at);
CREATE TABLE IF NOT EXISTS idempotency_results (
    result_id TEXT NOT NULL,
    name TEXT NOT NULL,
    PRIMARY KEY (result_id, name)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS idempotency_results_name ON idempotency_results (name);
ALTER TABLE idempotency ADD COLUMN shared INTEGER NOT NULL DEFAULT 0;
"""

TOPIC = "keys"
"""Topic of the notification that a key was answered or released."""
_LEFT = "left:"
"""Prefix of the owner of a claim that its process has left. No process has such an id, so that servers of an older
version take the owner for a dead process, which means the same."""
_THIS = "name = ? AND owner = ? AND expires_at = ?"
"""Condition for the row of a claim; see `_this`."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of a process on a key.

    name: digest of the client, the endpoint and the key.
    fingerprint: digest of the first request with the key.
    owner: id of the process that answers, or has answered, that request.
    expires_at: time at which the key expires. With `owner` it also distinguishes this claim from a later claim on the
        key, which an abandoned request must not change.
    done: whether the answer is stored.
    shared: whether other requests may have been given the results that its request stored; they are never removed.
    """

    name: str
    fingerprint: str
    owner: str
    expires_at: float
    done: bool = False
    shared: bool = field(default=False, compare=False)

    @property
    def is_left(self) -> bool:
        """Whether its process has left it to the next request with the key; see `leave`."""
        return self.owner.startswith(_LEFT)

    @property
    def claimed_by(self) -> str:
        """Id of the process that made the claim."""
        return self.owner.removeprefix(_LEFT)


def find(ledger: Transaction, name: str, now: float) -> Claim | None:
    """Return the current claim on the key; None if it is free."""
    row = ledger.execute("SELECT * FROM idempotency WHERE name = ? AND expires_at > ?", (name, now)).fetchone()
    return None if row is None else _claim_from_row(row)


def claim(
    ledger: Transaction, wanted: Claim, now: float, instead_of: Claim | None = None, result_ids: Collection[str] = ()
) -> list[Claim] | None:
    """Claim a key that is free, or has the unanswered claim `instead_of`, whose process is dead or has left it.

    Args:
        ledger: the transaction.
        wanted: the claim.
        now: the time.
        instead_of: that claim; None: the key must be free.
        result_ids: the stored results that the answer will contain, if the request succeeds.

    Returns:
        The claims that it replaces, expired ones or `instead_of`; None if another process was first.
    """
    replaceable = "name = ? AND (expires_at <= ? OR (owner = ? AND expires_at = ? AND done = 0))"
    owner, expires_at = (instead_of.owner, instead_of.expires_at) if instead_of else (None, None)
    removed = _delete(ledger, replaceable, (wanted.name, now, owner, expires_at))
    entered = ledger.execute(
        "INSERT INTO idempotency (name, fingerprint, owner, expires_at) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (name) DO NOTHING",
        (wanted.name, wanted.fingerprint, wanted.owner, wanted.expires_at),
    )
    if entered.rowcount != 1:
        return None
    _enter_results(ledger, wanted, result_ids)
    return removed


def contain(ledger: Transaction, claimed: Claim, result_ids: Collection[str]) -> None:
    """Record which stored results the answer to a key contains; does nothing if the claim no longer exists."""
    # the update locks the row, so that no other process takes over the key before this is committed
    locked = ledger.execute(f"UPDATE idempotency SET owner = owner WHERE {_THIS}", _this(claimed))  # noqa: S608 -- values are bound
    if locked.rowcount:
        _enter_results(ledger, claimed, result_ids)


def results_of(ledger: Transaction, claimed: Claim) -> list[str]:
    """Return the ids of the stored results that the answer to a claim contains, or would contain, in any order."""
    rows = ledger.execute("SELECT result_id FROM idempotency_results WHERE name = ?", (claimed.name,))
    return [row["result_id"] for row in rows]


def share(ledger: Transaction, claimed: Claim) -> None:
    """Protect the results of a claim's request from removal, so that other requests can be given them.

    The claim may have been left meanwhile.
    """
    for one in (claimed, replace(claimed, owner=f"{_LEFT}{claimed.owner}")):
        ledger.execute(f"UPDATE idempotency SET shared = 1 WHERE {_THIS}", _this(one))  # noqa: S608 -- values are bound


def containing(ledger: Transaction, result_id: str) -> list[Claim]:
    """Return the claims whose answers contain a result."""
    rows = ledger.execute(
        "SELECT * FROM idempotency WHERE name IN (SELECT name FROM idempotency_results WHERE result_id = ?)",
        (result_id,),
    )
    return [_claim_from_row(row) for row in rows]


def mark_answered(ledger: Transaction, claimed: Claim) -> bool:
    """Mark a claim as answered, as its response is stored; returns False if the claim no longer exists."""
    ledger.notify(TOPIC)
    updated = ledger.execute(f"UPDATE idempotency SET done = 1 WHERE {_THIS}", _this(claimed))  # noqa: S608 -- values are bound
    return updated.rowcount == 1


def release(ledger: Transaction, claimed: Claim) -> None:
    """Release a claim whose answer is missing, so that the next request with the key counts as the first."""
    _release(ledger, claimed, (0, 1))


def release_unanswered(ledger: Transaction, claimed: Claim) -> bool:
    """Release a claim unless its answer is recorded; returns whether the claim no longer exists."""
    _release(ledger, claimed, (0, 0))
    return _is_gone(ledger, claimed)


def leave(ledger: Transaction, claimed: Claim) -> bool:
    """Leave a claim, unless its answer is recorded, with its results to the next request with the key.

    Returns:
        Whether the claim no longer exists as it was.
    """
    ledger.notify(TOPIC)
    owner = f"{_LEFT}{claimed.owner}"
    ledger.execute(f"UPDATE idempotency SET owner = ? WHERE {_THIS} AND done = 0", (owner, *_this(claimed)))  # noqa: S608 -- values are bound
    return _is_gone(ledger, claimed)


def unanswered_of(ledger: Transaction, owner: str) -> list[Claim]:
    """Return the unanswered claims of a process."""
    rows = ledger.execute("SELECT * FROM idempotency WHERE owner = ? AND done = 0", (owner,))
    return [_claim_from_row(row) for row in rows]


def is_free(ledger: Transaction, name: str) -> bool:
    """Return whether there is no claim on the key, not even an expired one."""
    return ledger.execute("SELECT 1 FROM idempotency WHERE name = ?", (name,)).fetchone() is None


def delete_expired(ledger: Transaction, now: float) -> list[Claim]:
    """Remove expired claims and return them."""
    return _delete(ledger, "expires_at <= ?", (now,))


def _is_gone(ledger: Transaction, claimed: Claim) -> bool:
    return ledger.execute(f"SELECT 1 FROM idempotency WHERE {_THIS}", _this(claimed)).fetchone() is None  # noqa: S608 -- values are bound


def _enter_results(ledger: Transaction, claimed: Claim, result_ids: Collection[str]) -> None:
    if result_ids:
        ledger.executemany(
            "INSERT INTO idempotency_results (result_id, name) VALUES (?, ?) ON CONFLICT (result_id, name) DO NOTHING",
            [(result_id, claimed.name) for result_id in result_ids],
        )


def _release(ledger: Transaction, claimed: Claim, done: tuple[int, int]) -> None:
    """Release a claim if its `done` is one of the values."""
    ledger.notify(TOPIC)
    _delete(ledger, f"{_THIS} AND done IN (?, ?)", (*_this(claimed), *done))


def _delete(ledger: Transaction, condition: str, values: Sequence[Any]) -> list[Claim]:
    """Delete the claims that meet a condition, and return them.

    The records of the results in their answers are deleted, too; otherwise the deletion of such a result would later
    remove the next answer to the same key.
    """
    rows = ledger.execute(f"DELETE FROM idempotency WHERE {condition} RETURNING *", values)  # noqa: S608 -- values are bound
    claims = [_claim_from_row(row) for row in rows.fetchall()]
    ledger.executemany("DELETE FROM idempotency_results WHERE name = ?", [(one.name,) for one in claims])
    return claims


def _this(claimed: Claim) -> tuple[str, str, float]:
    return claimed.name, claimed.owner, claimed.expires_at


def _claim_from_row(row: Any) -> Claim:
    return Claim(
        row["name"], row["fingerprint"], row["owner"], row["expires_at"], bool(row["done"]), bool(row["shared"])
    )
