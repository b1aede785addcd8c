"""The table of jobs: what each statement does to it, and nothing else. Times are seconds since the epoch."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from service.core.schemas import JobReply, JobStatus, WebhookReply

SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY,
    status TEXT NOT NULL,
    owner TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    created_at REAL NOT NULL,
    finished_at REAL,
    facts TEXT NOT NULL,
    results TEXT NOT NULL DEFAULT '[]',
    problem TEXT
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS jobs_unfinished ON jobs (owner) WHERE finished_at IS NULL;
CREATE INDEX IF NOT EXISTS jobs_finished ON jobs (finished_at) WHERE finished_at IS NOT NULL;
CREATE TABLE IF NOT EXISTS webhook_states (
    job_id TEXT PRIMARY KEY,
    state TEXT NOT NULL,
    tries INTEGER NOT NULL,
    reason TEXT
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Job:
    """One asynchronous request.

    owner: the process that runs it, or ran it until it died.
    attempts: how often it was begun from its beginning.
    facts: JSON values that another process needs to run it again.
    """

    id: str
    status: JobStatus
    owner: str
    created_at: float
    facts: dict[str, Any]
    attempts: int = 1
    finished_at: float | None = None
    result_urls: list[str] = field(default_factory=list)
    problem: dict[str, Any] | None = None
    webhook: WebhookReply | None = None
    """What became of it, once it has been tried."""

    def reply(self) -> JobReply:
        return JobReply(
            id=self.id,
            status=self.status,
            created=datetime.fromtimestamp(self.created_at, timezone.utc).isoformat(),
            result_url=self.result_urls[0] if self.result_urls else None,
            result_urls=self.result_urls,
            problem=self.problem,
            webhook=self.webhook or self._untried(),
        )

    def _untried(self) -> WebhookReply | None:
        if "webhook" not in self.facts:
            return None
        skipped = self.finished_at is not None and self.status not in self.facts["webhook_events"]
        return WebhookReply(state="skipped" if skipped else "pending")


def insert(ledger: sqlite3.Connection, job: Job, max_unfinished: int) -> Job | None:
    """Enter a new job and return it; where there is one of its id, that one.

    None where that many are unfinished already, of all processes together.
    """
    if (known := find(ledger, job.id)) is not None:
        return known
    (unfinished,) = ledger.execute("SELECT count(*) FROM jobs WHERE finished_at IS NULL").fetchone()
    if unfinished >= max_unfinished:
        return None
    ledger.execute(
        "INSERT INTO jobs (id, status, owner, attempts, created_at, facts) VALUES (?, ?, ?, ?, ?, ?)",
        (job.id, job.status, job.owner, job.attempts, job.created_at, json.dumps(job.facts)),
    )
    return job


def find(ledger: sqlite3.Connection, job_id: str, finished_after: float = 0.0) -> Job | None:
    """The job, unless it finished too long ago."""
    row = ledger.execute(
        "SELECT * FROM jobs WHERE id = ? AND (finished_at IS NULL OR finished_at > ?)", (job_id, finished_after)
    ).fetchone()
    return None if row is None else replace(_job(row), webhook=_webhook(ledger, job_id))


def tell_webhook(ledger: sqlite3.Connection, job_id: str, webhook: WebhookReply) -> None:
    """Write down what became of a job's webhook, as long as there is the job."""
    ledger.execute(
        "INSERT OR REPLACE INTO webhook_states (job_id, state, tries, reason) "
        "SELECT id, ?, ?, ? FROM jobs WHERE id = ?",
        (webhook.state, webhook.tries, webhook.reason, job_id),
    )


def begin(ledger: sqlite3.Connection, job_id: str) -> None:
    """Its first sample was taken into a batch."""
    ledger.execute("UPDATE jobs SET status = 'running' WHERE id = ? AND status = 'queued'", (job_id,))


def requeue(ledger: sqlite3.Connection, job_id: str) -> None:
    """Its process ends before it could be computed; the next one runs it, and this was no failed attempt."""
    ledger.execute(
        "UPDATE jobs SET status = 'queued', attempts = attempts - 1 WHERE id = ? AND finished_at IS NULL", (job_id,)
    )


def finish(ledger: sqlite3.Connection, job: Job) -> bool:
    """Write down how it ended; False where it has ended already (it was cancelled meanwhile)."""
    changed = ledger.execute(
        "UPDATE jobs SET status = ?, finished_at = ?, results = ?, problem = ? WHERE id = ? AND finished_at IS NULL",
        (
            job.status,
            job.finished_at,
            json.dumps(job.result_urls),
            None if job.problem is None else json.dumps(job.problem),
            job.id,
        ),
    )
    return changed.rowcount == 1


def owners(ledger: sqlite3.Connection) -> list[str]:
    """Who has unfinished jobs."""
    return [row["owner"] for row in ledger.execute("SELECT DISTINCT owner FROM jobs WHERE finished_at IS NULL")]


def inherit(ledger: sqlite3.Connection, dead: str, heir: str) -> list[Job]:
    """The unfinished jobs of a dead process, now another's; in the order in which they came."""
    rows = ledger.execute(
        "UPDATE jobs SET owner = ?, status = 'queued', attempts = attempts + 1 "
        "WHERE owner = ? AND finished_at IS NULL RETURNING *",
        (heir, dead),
    ).fetchall()
    return sorted(map(_job, rows), key=lambda job: job.created_at)


def ended(ledger: sqlite3.Connection, job_ids: Collection[str]) -> list[str]:
    """Those of them that are finished: cancelled, perhaps through another process."""
    rows = ledger.execute(
        "SELECT id FROM jobs WHERE finished_at IS NOT NULL AND id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(job_ids)),),
    )
    return [row["id"] for row in rows]


def unfinished(ledger: sqlite3.Connection) -> set[str]:
    """The ids of all jobs that are not finished, whichever process has them."""
    return {row["id"] for row in ledger.execute("SELECT id FROM jobs WHERE finished_at IS NULL")}


def forget(ledger: sqlite3.Connection, finished_before: float) -> None:
    """Remove what finished too long ago."""
    old = "SELECT id FROM jobs WHERE finished_at <= ?"
    ledger.execute(f"DELETE FROM webhook_states WHERE job_id IN ({old})", (finished_before,))  # noqa: S608 -- ours
    ledger.execute("DELETE FROM jobs WHERE finished_at <= ?", (finished_before,))


def _webhook(ledger: sqlite3.Connection, job_id: str) -> WebhookReply | None:
    row = ledger.execute("SELECT state, tries, reason FROM webhook_states WHERE job_id = ?", (job_id,)).fetchone()
    return None if row is None else WebhookReply(state=row["state"], tries=row["tries"], reason=row["reason"])


def _job(row: sqlite3.Row) -> Job:
    return Job(
        id=row["id"],
        status=row["status"],
        owner=row["owner"],
        created_at=row["created_at"],
        facts=json.loads(row["facts"]),
        attempts=row["attempts"],
        finished_at=row["finished_at"],
        result_urls=json.loads(row["results"]),
        problem=None if row["problem"] is None else json.loads(row["problem"]),
    )
