"""Choice of the process that runs a job when hosts share the ledger: its acceptor, or the first with a free slot.

A process takes jobs without an owner, jobs of processes whose lease has ended, and jobs of its own that it does not run
because the database's answer to their commit was lost. Of these it takes only jobs whose models it serves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from service.jobs import jobs_table
from service.jobs.jobs_table import Job
from service.ledger.contract import SharedOwner, Transaction, named
from service.ledger.database import Database

TOPIC = "jobs"
_POLL_INTERVAL_S = 2.0
"""Longest wait for a notification: ended leases send none, and some are lost while the database is away."""
_WAITING = (
    "SELECT id FROM jobs WHERE finished_at IS NULL AND (owner = '' OR (owner = ? AND created_at < ?) "
    "OR (? = 1 AND owner <> ? AND owner NOT IN (SELECT id FROM nodes WHERE seen_at > clock_timestamp() - ? * interval "
    "'1 second'))) AND ((facts::json->>'model' IS NULL AND ? = 1) OR facts::json->>'model' IN {served} "
    "OR (facts::json->>'deadline_at')::float8 < ?) ORDER BY created_at LIMIT ?"
)
"""SELECT of the jobs that this process may take; `{served}` is the list of its models; see `Job.is_for`."""


@dataclass(frozen=True, slots=True)
class SharedQueue:
    """The jobs of all hosts. See `JobQueue`.

    slots: limit of jobs that this process runs at once; further jobs that it accepts wait for any process.
    """

    ledger: Database
    owner: SharedOwner
    now: Callable[[], float]
    slots: int

    def owner_of_new(self, running: int) -> str:
        """See `JobQueue`."""
        return self.owner.id if running < self.slots else ""

    async def take(self, running: Collection[str], served: Collection[str] = ()) -> list[Job]:
        """See `JobQueue`."""
        free = self.slots - len(running)
        if free <= 0:
            return []
        is_steady = int(self.owner.is_steady)
        mine = (self.owner.id, self.now() - jobs_table.IN_DOUBT_S)
        alive = (is_steady, self.owner.id, self.owner.lease_s)
        values = (*mine, *alive, int(bool(served)), *served, self.now(), free + len(running))
        waiting = _WAITING.format(served=named(tuple(served)))
        if not (set(await self.ledger.read(partial(_waiting, waiting=waiting, values=values))) - set(running)):
            return []
        ours = frozenset(running)
        take = partial(_take, waiting=waiting, values=values, running=ours, limit=free, owner=self.owner.id)
        return await self.ledger.write(take)

    async def give_back(self, job_ids: Sequence[str]) -> None:
        """See `JobQueue`."""
        await self.ledger.write_until_done(partial(_give_back, job_ids=job_ids, owner=self.owner.id))

    async def pause(self) -> None:
        """See `JobQueue`."""
        await self.owner.changed(TOPIC, _POLL_INTERVAL_S)

    def slot_freed(self) -> None:
        """See `JobQueue`."""
        self.owner.wake(TOPIC)


def _waiting(ledger: Transaction, waiting: str, values: tuple[object, ...]) -> list[str]:
    return [row["id"] for row in ledger.execute(waiting, values)]


def _take(
    ledger: Transaction, waiting: str, values: tuple[object, ...], running: frozenset[str], limit: int, owner: str
) -> list[Job]:
    """Take jobs that no other process takes at the same time."""
    locked = ledger.execute(f"{waiting} {ledger.skip_locked}", values)
    jobs = []
    for job_id in [row["id"] for row in locked if row["id"] not in running][:limit]:
        row = ledger.execute(
            "UPDATE jobs SET owner = ?, status = 'queued', attempts = attempts + 1 WHERE id = ? RETURNING *",
            (owner, job_id),
        ).fetchone()
        jobs.append(jobs_table.job_from_row(row))
    return jobs


def _give_back(ledger: Transaction, job_ids: Sequence[str], owner: str) -> None:
    jobs_table.give_back(ledger, job_ids, owner, to="")
    ledger.notify(TOPIC)
