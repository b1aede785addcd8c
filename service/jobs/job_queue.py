"""Choice of the process that runs a job. With SQLite: the process that accepted it, or, once that is dead, an heir.

A process also takes jobs of its own that it does not run: their commit was reported as failed but had succeeded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from service.jobs import jobs_table
from service.jobs.jobs_table import Job
from service.ledger.contract import Owner
from service.ledger.database import Database

_POLL_INTERVAL_S = 0.5


class JobQueue(Protocol):
    """The jobs of all processes, of which this one runs some. Used on the event loop."""

    def owner_of_new(self, running: int) -> str:
        """Return the owner of a new job, given this process's number of jobs; empty: any process with a free slot."""

    async def take(self, running: Collection[str], served: Collection[str] = ()) -> list[Job]:
        """Return jobs that this process owns from now on and must run.

        Args:
            running: ids of the jobs that it already runs or is entering.
            served: the models that it can serve; see `Job.is_for`.

        Raises:
            NotReady: code `ledger_unavailable`.
        """

    async def give_back(self, job_ids: Sequence[str]) -> None:
        """Leave this process's unfinished jobs to others as it ends cleanly; their runs do not count as crashes.

        Raises:
            NotReady: as raised by `Database.write_until_done`.
        """

    async def pause(self) -> None:
        """Wait until there may be jobs to take or to stop."""

    def slot_freed(self) -> None:
        """Record that a job of this process has ended, so that it may take another."""


@dataclass(frozen=True, slots=True)
class HostQueue:
    """Jobs of the processes of one host: each runs the jobs that it accepts, and an heir those of a dead process."""

    ledger: Database
    owner: Owner
    now: Callable[[], float]

    def owner_of_new(self, running: int) -> str:  # noqa: ARG002 -- admission limits jobs
        """See `JobQueue`."""
        return self.owner.id

    async def take(self, running: Collection[str], served: Collection[str] = ()) -> list[Job]:
        """See `JobQueue`.

        Raises:
            OSError: no file descriptor is left to check an owner's lock.
        """
        taken = [job for job in await self._unknown(running) if job.is_for(served, self.now())]
        for owner_id in await self.ledger.read(jobs_table.owners):
            if not await asyncio.to_thread(self.owner.is_alive, owner_id):
                left = await self.ledger.read(partial(jobs_table.unfinished_of, owner=owner_id))
                if ids := [job.id for job in left if job.is_for(served, self.now())]:
                    inherit = partial(jobs_table.inherit, dead_owner=owner_id, new_owner=self.owner.id, only=ids)
                    taken += await self.ledger.write(inherit)
        return taken

    async def _unknown(self, running: Collection[str]) -> list[Job]:
        """Unfinished jobs of this process that it does not run."""
        since = self.now() - jobs_table.IN_DOUBT_S
        mine = await self.ledger.read(partial(jobs_table.inserted_before, owner=self.owner.id, moment=since))
        asked = [self.ledger.read(partial(jobs_table.find, job_id=job_id)) for job_id in mine - set(running)]
        return [job for job in await asyncio.gather(*asked) if job is not None and job.finished_at is None]

    async def give_back(self, job_ids: Sequence[str]) -> None:
        """See `JobQueue`; another process inherits the jobs once this one has ended."""
        mine = self.owner.id
        await self.ledger.write_until_done(partial(jobs_table.give_back, job_ids=job_ids, owner=mine, to=mine))

    async def pause(self) -> None:
        """See `JobQueue`."""
        await asyncio.sleep(_POLL_INTERVAL_S)

    def slot_freed(self) -> None:
        """Do nothing: every admitted job runs at once."""
