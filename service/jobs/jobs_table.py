"""Ledger table of jobs, with its SQL statements. Times are seconds since the epoch."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from service.core.schemas import JobReply, JobStatus, WebhookReply
from service.jobs import webhook_table

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
"""


@dataclass(frozen=True, slots=True)
class Job:
    """One asynchronous request.

    owner: the process that runs it, or ran it until it died.
    attempts: how often it was started.
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
    """The state of its webhook, after the first attempt."""

    def reply(self) -> JobReply:
        return JobReply(
            id=self.id,
            status=self.status,
            created=datetime.fromtimestamp(self.created_at, timezone.utc).isoformat(),
            result_url=self.result_urls[0] if self.result_urls else None,
            result_urls=self.result_urls,
            problem=self.problem,
            webhook=self.webhook or self._webhook_state_before_tries(),
        )

    def _webhook_state_before_tries(self) -> WebhookReply | None:
        if "webhook" not in self.facts:
            return None
        skipped = self.finished_at is not None and self.status not in self.facts["webhook_events"]
        return WebhookReply(state="skipped" if skipped else "pending")


def insert(ledger: sqlite3.Connection, job: Job, max_unfinished: int) -> Job | None:
    """Insert a new job and return it, or return the existing job of its id.

    Returns None if `max_unfinished` jobs of all processes together are already unfinished.
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
    """Return the job; None if there is none or it finished before `finished_after`."""
    row = ledger.execute(
        "SELECT * FROM jobs WHERE id = ? AND (finished_at IS NULL OR finished_at > ?)", (job_id, finished_after)
    ).fetchone()
    return None if row is None else replace(_job_from_row(row), webhook=webhook_table.find_state(ledger, job_id))


def begin(ledger: sqlite3.Connection, job_id: str) -> None:
    """Mark a job as running: its first sample is in a batch."""
    ledger.execute("UPDATE jobs SET status = 'running' WHERE id = ? AND status = 'queued'", (job_id,))


def requeue(ledger: sqlite3.Connection, job_id: str) -> None:
    """Queue a job again after a shutdown of its process, without counting an attempt."""
    ledger.execute(
        "UPDATE jobs SET status = 'queued', attempts = attempts - 1 WHERE id = ? AND finished_at IS NULL", (job_id,)
    )


def finish(ledger: sqlite3.Connection, job: Job) -> bool:
    """Record how a job ended; returns False if it had already ended, as when it was cancelled."""
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
    """Return the processes that own unfinished jobs."""
    return [row["owner"] for row in ledger.execute("SELECT DISTINCT owner FROM jobs WHERE finished_at IS NULL")]


def inherit(ledger: sqlite3.Connection, dead: str, heir: str) -> list[Job]:
    """Transfer the unfinished jobs of a dead process to `heir` and return them, oldest first."""
    rows = ledger.execute(
        "UPDATE jobs SET owner = ?, status = 'queued', attempts = attempts + 1 "
        "WHERE owner = ? AND finished_at IS NULL RETURNING *",
        (heir, dead),
    ).fetchall()
    return sorted(map(_job_from_row, rows), key=lambda job: job.created_at)


def ended_among(ledger: sqlite3.Connection, job_ids: Collection[str]) -> list[str]:
    """Return the ids of those jobs that have ended, as when cancelled through another process."""
    rows = ledger.execute(
        "SELECT id FROM jobs WHERE finished_at IS NOT NULL AND id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(job_ids)),),
    )
    return [row["id"] for row in rows]


def unfinished(ledger: sqlite3.Connection) -> set[str]:
    """Return the ids of the unfinished jobs of all processes."""
    return {row["id"] for row in ledger.execute("SELECT id FROM jobs WHERE finished_at IS NULL")}


def forget(ledger: sqlite3.Connection, finished_before: float) -> None:
    """Remove jobs that finished before `finished_before`."""
    old = "SELECT id FROM jobs WHERE finished_at <= ?"
    ledger.execute(f"DELETE FROM webhook_states WHERE job_id IN ({old})", (finished_before,))  # noqa: S608 -- ours
    ledger.execute("DELETE FROM jobs WHERE finished_at <= ?", (finished_before,))


def _job_from_row(row: sqlite3.Row) -> Job:
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
