"""Ledger table of jobs, with its SQL statements. Times are seconds since the epoch.

A job stores its request's key (`Call.repeat_key`), if there is one. So a repeated request finds the job even if the
first one was refused because the database went away during the commit, or its server died before it answered.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from service.core.schemas import JobReply, JobStatus, WebhookReply
from service.jobs import webhook_table
from service.ledger.contract import Transaction, named

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
ALTER TABLE jobs ADD COLUMN request_key TEXT;
CREATE UNIQUE INDEX IF NOT EXISTS jobs_request_key ON jobs (request_key);
ALTER TABLE jobs ADD COLUMN shared_runs TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN given_back INTEGER NOT NULL DEFAULT 0;
CREATE TABLE IF NOT EXISTS jobs_since (one INTEGER PRIMARY KEY, moment REAL NOT NULL);
"""

_UNFINISHED_OF = "owner = ? AND finished_at IS NULL"
IN_DOUBT_S = 10.0
"""Age in seconds at which a process takes up a job of its own that it neither runs nor is inserting: the commit was
reported as failed but had succeeded."""


@dataclass(frozen=True, slots=True)
class Job:
    """One asynchronous request.

    owner: the process that runs it, or ran it until it died; empty: none yet.
    attempts: number of runs begun, which is also the number of the last run.
    given_back: number of runs that ended because their process ended cleanly; they do not count as crashes.
    shared_runs: numbers of the runs whose results other requests may have been given; these results are never removed.
    facts: JSON values that another process needs to run the job again. `model`: the model that it is for, as `name` or
        `name/version`; None if the accepting process could not serve it.
    """

    id: str
    status: JobStatus
    owner: str
    created_at: float
    facts: dict[str, Any]
    attempts: int = 1
    given_back: int = 0
    shared_runs: frozenset[int] = frozenset()
    finished_at: float | None = None
    result_urls: list[str] = field(default_factory=list)
    problem: dict[str, Any] | None = None
    webhook: WebhookReply | None = None
    """State of the webhook's delivery; None before the first attempt."""

    def seconds_left(self, now: float) -> float:
        """Return the seconds until the deadline, negative after it; `now`: seconds since the epoch."""
        left_s: float = self.facts["deadline_at"] - now
        return left_s

    def is_for(self, served: Collection[str], now: float) -> bool:
        """Return whether a process with these models should take the job; after its deadline any should, to end it."""
        return self.has_model_in(served) or self.facts.get("deadline_at", now) < now

    def has_model_in(self, served: Collection[str]) -> bool:
        """Return whether these models can run the job; one without a recorded model needs at least one model."""
        model = self.facts.get("model")
        return bool(served) if model is None else model in served

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


def insert(ledger: Transaction, job: Job, max_unfinished: int, request_key: str | None = None) -> Job | None:
    """Insert a new job and return it, or return an existing job with the same id or request key.

    Returns None if there are already `max_unfinished` unfinished jobs across all processes.
    """
    if (known := _find_existing(ledger, job.id, request_key)) is not None:
        return known
    unfinished = ledger.execute("SELECT count(*) AS jobs FROM jobs WHERE finished_at IS NULL").fetchone()["jobs"]
    if unfinished >= max_unfinished:
        return None
    entered = ledger.execute(
        "INSERT INTO jobs (id, status, owner, attempts, created_at, facts, request_key) VALUES (?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT DO NOTHING",
        (job.id, job.status, job.owner, job.attempts, job.created_at, json.dumps(job.facts), request_key),
    )
    if not entered.rowcount:
        return _find_existing(ledger, job.id, request_key)
    if not job.owner:
        ledger.notify("jobs")
    return job


def find(ledger: Transaction, job_id: str, finished_after: float = 0.0) -> Job | None:
    """Return the job; None if there is none or it finished before `finished_after`."""
    row = ledger.execute(
        "SELECT * FROM jobs WHERE id = ? AND (finished_at IS NULL OR finished_at > ?)", (job_id, finished_after)
    ).fetchone()
    return None if row is None else replace(job_from_row(row), webhook=webhook_table.find_state(ledger, job_id))


def _find_existing(ledger: Transaction, job_id: str, request_key: str | None) -> Job | None:
    row = ledger.execute("SELECT id FROM jobs WHERE id = ? OR request_key = ?", (job_id, request_key)).fetchone()
    return None if row is None else find(ledger, row["id"])


def begin(ledger: Transaction, job_id: str) -> None:
    """Mark a job as running: its first sample is in a batch."""
    ledger.execute("UPDATE jobs SET status = 'running' WHERE id = ? AND status = 'queued'", (job_id,))


def share(ledger: Transaction, job_id: str, owner: str, attempts: int) -> bool:
    """Protect a run's results from removal, so that other requests can be given them.

    Returns:
        False if they may already be removed: another run has begun, or the job has ended without success.
    """
    kept = ledger.execute(
        "UPDATE jobs SET shared_runs = shared_runs || ? "
        "WHERE id = ? AND owner = ? AND attempts = ? AND (finished_at IS NULL OR status = 'succeeded')",
        (f"{attempts} ", job_id, owner, attempts),
    )
    return kept.rowcount == 1


def give_back(ledger: Transaction, job_ids: Sequence[str], owner: str, to: str) -> None:
    """Queue again the unfinished jobs of a process that ends cleanly; `to`: their new owner.

    Their runs keep their numbers, as they may have stored results.
    """
    mine = f"finished_at IS NULL AND owner = ? AND attempts > given_back AND id IN {named(job_ids)}"
    ledger.execute(
        f"UPDATE jobs SET owner = ?, status = 'queued', given_back = given_back + 1 WHERE {mine}",  # noqa: S608 -- values are bound
        [to, owner, *job_ids],
    )


def finish(ledger: Transaction, job: Job) -> Job | None:
    """Record how a job ended; returns the stored job, or None if it had already ended or has another owner.

    Any process may cancel a job; this wakes the process that runs it.
    """
    cancelled = job.status == "cancelled"
    if cancelled:
        ledger.notify("jobs")
    row = ledger.execute(
        "UPDATE jobs SET status = ?, finished_at = ?, results = ?, problem = ? "
        "WHERE id = ? AND finished_at IS NULL AND (owner = ? OR ? = 1) RETURNING *",
        (
            job.status,
            job.finished_at,
            json.dumps(job.result_urls),
            None if job.problem is None else json.dumps(job.problem),
            job.id,
            job.owner,
            int(cancelled),
        ),
    ).fetchone()
    return None if row is None else job_from_row(row)


def owners(ledger: Transaction) -> list[str]:
    """Return the processes that own unfinished jobs."""
    return [row["owner"] for row in ledger.execute("SELECT DISTINCT owner FROM jobs WHERE finished_at IS NULL")]


def inserted_before(ledger: Transaction, owner: str, moment: float) -> set[str]:
    """Return the ids of a process's unfinished jobs that were created before `moment`, in seconds since the epoch."""
    rows = ledger.execute(
        "SELECT id FROM jobs WHERE finished_at IS NULL AND owner = ? AND created_at < ?", (owner, moment)
    )
    return {row["id"] for row in rows}


def unfinished_of(ledger: Transaction, owner: str) -> list[Job]:
    """Return the unfinished jobs of a process."""
    return [job_from_row(row) for row in ledger.execute(f"SELECT * FROM jobs WHERE {_UNFINISHED_OF}", (owner,))]  # noqa: S608 -- values are bound


def inherit(ledger: Transaction, dead_owner: str, new_owner: str, only: Sequence[str] | None = None) -> list[Job]:
    """Transfer the unfinished jobs of a dead process to `new_owner` and return them, oldest first.

    `only`: ids of the jobs to transfer; None: all.
    """
    chosen = _UNFINISHED_OF if only is None else f"{_UNFINISHED_OF} AND id IN {named(only)}"
    rows = ledger.execute(
        f"UPDATE jobs SET owner = ?, status = 'queued', attempts = attempts + 1 WHERE {chosen} RETURNING *",  # noqa: S608 -- values are bound
        (new_owner, dead_owner, *(only or ())),
    ).fetchall()
    return sorted(map(job_from_row, rows), key=lambda job: job.created_at)


def lost_among(ledger: Transaction, job_ids: Sequence[str], owner: str) -> set[str]:
    """Return those of `job_ids` that have ended or are no longer owned by `owner`."""
    rows = ledger.execute(
        f"SELECT id FROM jobs WHERE finished_at IS NULL AND owner = ? AND id IN {named(job_ids)}",  # noqa: S608 -- values are bound
        [owner, *job_ids],
    )
    return set(job_ids) - {row["id"] for row in rows}


def unfinished(ledger: Transaction) -> set[str]:
    """Return the ids of the unfinished jobs of all processes."""
    return {row["id"] for row in ledger.execute("SELECT id FROM jobs WHERE finished_at IS NULL")}


def known(ledger: Transaction) -> set[str]:
    """Return the ids of the jobs of all processes, including those that have ended."""
    return {row["id"] for row in ledger.execute("SELECT id FROM jobs")}


def known_since(ledger: Transaction) -> float | None:
    """Return since when this ledger has recorded its servers' jobs, in seconds since the epoch; None if unknown."""
    row = ledger.execute("SELECT moment FROM jobs_since").fetchone()
    return None if row is None else float(row["moment"])


def set_known_since(ledger: Transaction, moment: float) -> float:
    """Record since when this ledger has its servers' jobs, unless recorded before; returns the recorded time."""
    ledger.execute("INSERT INTO jobs_since (one, moment) VALUES (1, ?) ON CONFLICT (one) DO NOTHING", (moment,))
    return known_since(ledger) or moment


def forget(ledger: Transaction, finished_before: float) -> None:
    """Remove jobs that finished before `finished_before`."""
    old = "SELECT id FROM jobs WHERE finished_at <= ?"
    ledger.execute(f"DELETE FROM webhook_states WHERE job_id IN ({old})", (finished_before,))  # noqa: S608 -- values are bound
    ledger.execute("DELETE FROM jobs WHERE finished_at <= ?", (finished_before,))


def job_from_row(row: Any) -> Job:
    """Convert a row of the table."""
    return Job(
        id=row["id"],
        status=row["status"],
        owner=row["owner"],
        created_at=row["created_at"],
        facts=json.loads(row["facts"]),
        attempts=row["attempts"],
        given_back=row["given_back"],
        shared_runs=frozenset(map(int, row["shared_runs"].split())),
        finished_at=row["finished_at"],
        result_urls=json.loads(row["results"]),
        problem=None if row["problem"] is None else json.loads(row["problem"]),
    )
