"""Ledger tables of webhooks: undelivered messages, and the delivery state of each job's message.

Times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.core.schemas import WebhookReply
from service.ledger.contract import Transaction, named

_HOST_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789-._:[]"
_BEGIN = "substr(lower(url), 1, 300)"
_ORIGIN = f"substr({_BEGIN}, 1, length({_BEGIN}) - length(ltrim(substr({_BEGIN}, 9), '{_HOST_LETTERS}')))"
"""SQL for the origin of a URL (scheme, host and port): all before the first character after `https://` that no host
contains."""
_NEXT = "next_at + 0"
"""The time as the index by origin has it; with plain `next_at` PostgreSQL would use the index of all messages by
time."""
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS deliveries (
    id TEXT PRIMARY KEY,
    url TEXT NOT NULL,
    body TEXT NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    next_at REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS deliveries_due ON deliveries (next_at);
CREATE INDEX IF NOT EXISTS deliveries_in_turn ON deliveries ({_ORIGIN}, ({_NEXT}));
CREATE TABLE IF NOT EXISTS webhook_states (
    job_id TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    tries INTEGER NOT NULL,
    reason TEXT
) WITHOUT ROWID;
"""
_ALL_ORIGINS = f"""
    SELECT (SELECT min({_ORIGIN}) FROM deliveries) WHERE (SELECT min(next_at) FROM deliveries) <= ?
    UNION ALL
    SELECT (SELECT min({_ORIGIN}) FROM deliveries WHERE {_ORIGIN} > origins.origin)
    FROM origins WHERE origins.origin IS NOT NULL
"""  # noqa: S608 -- ours
"""Recursive query that steps from origin to origin in the index, if any message is due."""
_IN_TURN = f"""
), bounded (origin, latest) AS (
    SELECT origin, coalesce(
        (SELECT next_at FROM deliveries WHERE {_ORIGIN} = origins.origin AND {_NEXT} <= ?
         ORDER BY {_NEXT} LIMIT 1 OFFSET ?), ?)
    FROM origins WHERE origin IS NOT NULL
),
due AS (
    SELECT id, url, tries, next_at, ROW_NUMBER() OVER (PARTITION BY origin ORDER BY next_at) AS turn
    FROM bounded CROSS JOIN deliveries WHERE {_ORIGIN} = origin AND {_NEXT} <= latest
)
SELECT id, url FROM (
    SELECT id, url, ROW_NUMBER() OVER (ORDER BY turn, tries, next_at) AS from_oldest,
        ROW_NUMBER() OVER (ORDER BY turn, tries, next_at DESC) AS from_newest
    FROM due WHERE turn <= ?
) AS ranked ORDER BY CASE WHEN from_oldest < from_newest THEN from_oldest ELSE from_newest END, from_oldest LIMIT ?
"""  # noqa: S608 -- ours
"""Rest of the query: reads only the first messages of each origin from the index, so a long backlog costs nothing.

CROSS JOIN makes SQLite join in this order, whatever statistics the file has.
"""


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message to deliver.

    next_at: time of the next attempt; of a claimed message, the end of the lease, which also identifies the claim.
    tries: number of attempts, the current one included.
    """

    id: str
    url: str
    body: str
    next_at: float
    tries: int = 0


def add(ledger: Transaction, delivery: Delivery) -> None:
    """Insert a message, in the transaction that records its event."""
    ledger.execute(
        "INSERT INTO deliveries (id, url, body, next_at) VALUES (?, ?, ?, ?)",
        (delivery.id, delivery.url, delivery.body, delivery.next_at),
    )


def origin_of(url: str) -> str:
    """Return scheme, host and port of a URL as the index has them; for text that is not a URL, some prefix of it."""
    begin = url[:300].lower()
    return begin[: len(begin) - len(begin[8:].lstrip(_HOST_LETTERS))]


def due_in_turn(
    ledger: Transaction, now: float, max_per_origin: int, limit: int, always: Sequence[str] = ()
) -> list[tuple[str, str]]:
    """Return ids and URLs of due messages in rounds: the longest due message of each origin, then the next of each.

    In a round, messages with the fewest attempts come first, so that thousands of receivers that failed before cannot
    hide a new message. The longest and the shortest due alternate, so that thousands of new messages cannot either.

    Args:
        ledger: the transaction.
        now: time at which the messages are due, in seconds since the epoch.
        max_per_origin: limit of messages per origin.
        limit: limit of messages in all.
        always: origins, at most 900, whose messages are returned even if `limit` is reached, in addition to the others.
    """
    each = (now, max_per_origin - 1, now, max_per_origin, limit)
    rows = ledger.execute(f"WITH RECURSIVE origins (origin) AS ({_ALL_ORIGINS} {_IN_TURN}", (now, *each)).fetchall()
    if len(rows) == limit and always:
        listed = ", ".join(["(?)"] * len(always))
        rows += ledger.execute(f"WITH origins (origin) AS (VALUES {listed} {_IN_TURN}", (*always, *each)).fetchall()
    return list({row["id"]: (row["id"], row["url"]) for row in rows}.values())


def claim(ledger: Transaction, ids: Sequence[str], now: float, again_at: float) -> list[Delivery]:
    """Claim for this process those of the messages that are still due; after `again_at` others may claim them."""
    due = f"SELECT id FROM deliveries WHERE id IN {named(ids)} AND next_at <= ? {ledger.skip_locked}"  # noqa: S608 -- ours
    rows = ledger.execute(
        f"UPDATE deliveries SET next_at = ?, tries = tries + 1 WHERE id IN ({due}) RETURNING *",  # noqa: S608 -- ours
        (again_at, *ids, now),
    ).fetchall()
    return [Delivery(row["id"], row["url"], row["body"], row["next_at"], row["tries"]) for row in rows]


def postpone(ledger: Transaction, claimed: Delivery, next_at: float) -> bool:
    """Schedule the next attempt after a failed one; returns False if another process has claimed the message since."""
    mine = "UPDATE deliveries SET next_at = ? WHERE id = ? AND next_at = ?"
    return ledger.execute(mine, (next_at, claimed.id, claimed.next_at)).rowcount == 1


def make_due(ledger: Transaction, now: float, longest_s: Sequence[float]) -> None:
    """Make messages due whose next attempt is further ahead than any pause is: the clock was set back.

    Args:
        ledger: the transaction.
        now: time in seconds since the epoch.
        longest_s: longest time to the next attempt in seconds, by the number of attempts begun.
    """
    for tries, longest in enumerate(longest_s):
        late = "UPDATE deliveries SET next_at = ? WHERE next_at > ? AND tries = ?"
        ledger.execute(late, (now, now + longest, tries))


def remove(ledger: Transaction, delivery_id: str) -> None:
    """Remove a message that was delivered, or whose delivery was given up."""
    ledger.execute("DELETE FROM deliveries WHERE id = ?", (delivery_id,))


def set_state(ledger: Transaction, job_id: str, webhook: WebhookReply) -> None:
    """Record the delivery state of a job's webhook, if the job still exists."""
    ledger.execute(
        "INSERT INTO webhook_states (job_id, state, tries, reason) SELECT id, ?, ?, ? FROM jobs WHERE id = ? "
        "ON CONFLICT (job_id) DO UPDATE SET state = excluded.state, tries = excluded.tries, reason = excluded.reason",
        (webhook.state, webhook.tries, webhook.reason, job_id),
    )


def find_state(ledger: Transaction, job_id: str) -> WebhookReply | None:
    """Return the delivery state of a job's webhook; None before the first attempt."""
    row = ledger.execute("SELECT state, tries, reason FROM webhook_states WHERE job_id = ?", (job_id,)).fetchone()
    return None if row is None else WebhookReply(state=row["state"], tries=row["tries"], reason=row["reason"])
