"""Removal of stored requests that no unfinished job needs, which killed processes left."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial

import structlog

from service.jobs import jobs_table
from service.jobs.job_parts import JobParts

_log = structlog.get_logger(__name__)
_ORPHANED_AFTER_S = 600.0
"""Age of an orphan: much longer than storing a request and entering its job take, even on a slow disk."""
_LONGEST_S = 90_000.0
"""Age at which no job can run any more, whichever ledger has it: its deadline, of a day at most, has passed."""


@dataclass(slots=True)
class Orphans:
    """Stored requests without an unfinished job in the ledger.

    A request that is older than the ledger may be that of a job in another one, such as one that was moved away and
    comes back: it is kept for as long as that job could run.
    """

    parts: JobParts
    _told: set[str] = field(default_factory=set)

    async def drop(self) -> None:
        """Remove them.

        They are listed before the ledger is read, so a job that is entered meanwhile counts as unfinished. A request
        that is still being written has no row yet; it is too young to be listed.

        Raises:
            NotReady: code `ledger_unavailable`.
            OSError: they cannot be listed now.
        """
        parts, now = self.parts, self.parts.now()
        since = await parts.ledger.read(jobs_table.known_since)
        if since is None:
            since = await parts.ledger.write(partial(jobs_table.set_known_since, moment=now))
        old = await asyncio.to_thread(parts.kept.older_than, now - _ORPHANED_AFTER_S)
        if not old:
            return
        unfinished = await parts.ledger.read(jobs_table.unfinished)
        orphans = [job_id for job_id in old if job_id not in unfinished]
        foreign = await self._of_another_ledger(since, now) if orphans else set()
        for job_id in orphans:
            if job_id not in foreign:
                _log.info("request of no unfinished job removed", job=job_id)
                await asyncio.to_thread(parts.kept.drop, job_id)
        self._tell(foreign.intersection(orphans))

    async def _of_another_ledger(self, since: float, now: float) -> set[str]:
        before = set(await asyncio.to_thread(self.parts.kept.older_than, since))
        before -= set(await asyncio.to_thread(self.parts.kept.older_than, now - _LONGEST_S))
        return before - await self.parts.ledger.read(jobs_table.known) if before else before

    def _tell(self, kept: set[str]) -> None:
        if kept - self._told:
            why = "they are older than the ledger; if another one has their jobs, put it back within a day"
            _log.warning("requests of unknown jobs are kept for a day", requests=len(kept), reason=why)
        self._told = kept
