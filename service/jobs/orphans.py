"""Removal of stored requests that no unfinished job needs, left by killed processes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import structlog

from service.jobs import jobs_table
from service.jobs.job_parts import JobParts
from service.ledger.contract import Transaction

_log = structlog.get_logger(__name__)
_ORPHANED_AFTER_S = 600.0
"""Least age of an orphan: far longer than storing a request and inserting its job take, even on a slow disk."""
_MAX_JOB_AGE_S = 90_000.0
"""Age at which no job can run any more, in any ledger: its deadline, at most a day after its start, has passed."""


class _Known(NamedTuple):
    """Snapshot of a ledger's jobs."""

    since: float
    """Since when the ledger has recorded jobs, in seconds since the epoch."""
    jobs: set[str]
    unfinished: set[str]


def _read_known(ledger: Transaction) -> _Known | None:
    """Return the ledger's jobs; None if it does not record since when it has them."""
    since = jobs_table.known_since(ledger)
    return None if since is None else _Known(since, jobs_table.known(ledger), jobs_table.unfinished(ledger))


@dataclass(slots=True)
class Orphans:
    """Stored requests without an unfinished job in the ledger.

    A request older than the ledger may belong to a job in another ledger, such as one that was moved away and will be
    put back. It is kept for as long as that job could run.
    """

    parts: JobParts
    _reported: set[str] = field(default_factory=set)

    async def drop(self) -> None:
        """Remove the orphans.

        The requests are listed before the ledger is read, so a job that is inserted in between counts as unfinished. A
        request that is still being written has no row yet, but is too young to be listed. The ledger is read in one
        transaction, because another file may replace it at any time.

        Raises:
            NotReady: code `ledger_unavailable`.
            OSError: the requests cannot be listed now.
        """
        parts, now = self.parts, self.parts.now()
        if await parts.ledger.read(jobs_table.known_since) is None:
            await parts.ledger.write(partial(jobs_table.set_known_since, moment=now))
        old = await asyncio.to_thread(parts.orders.older_than, now - _ORPHANED_AFTER_S)
        known = await parts.ledger.read(_read_known) if old else None
        if known is None:  # there is nothing to remove, or another ledger has just replaced this one
            return
        orphans = [job_id for job_id in old if job_id not in known.unfinished]
        foreign = await self._of_another_ledger(known, now) if orphans else set()
        for job_id in orphans:
            if job_id not in foreign:
                _log.info("orphaned job request removed", job=job_id)
                await asyncio.to_thread(parts.orders.drop, job_id)
        self._report_foreign(foreign.intersection(orphans))

    async def _of_another_ledger(self, known: _Known, now: float) -> set[str]:
        before = set(await asyncio.to_thread(self.parts.orders.older_than, known.since))
        before -= set(await asyncio.to_thread(self.parts.orders.older_than, now - _MAX_JOB_AGE_S))
        return before - known.jobs

    def _report_foreign(self, foreign: set[str]) -> None:
        if foreign - self._reported:
            reason = "they are older than the ledger; if they belong to another ledger, restore it within a day"
            _log.warning("requests of unknown jobs are kept for a day", requests=len(foreign), reason=reason)
        self._reported = foreign
