"""Results that were stored by runs of a job that did not reach its end: reused by the next run, or removed.

The ids of a job's results are derived from the job, the run and the picture, so a later run can compute the ids of
earlier runs' results.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from service.core.errors import NotReady, ServiceError
from service.core.flow import Flow
from service.core.reply import Encoded
from service.jobs.jobs_table import Job
from service.ledger.contract import Transaction

_log = structlog.get_logger(__name__)
_POLL_INTERVAL_S = 0.5


def result_id(job_id: str, run: int, picture: int) -> str:
    """Make the id of a result: 32 hexadecimal digits that cannot be guessed without knowing the job's id.

    Args:
        job_id: id of the job.
        run: number of the run, from 1.
        picture: number of the picture among those of the run, from 0.
    """
    return hashlib.sha256(f"{job_id}/{run}/{picture}".encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class EarlierRuns:
    """Access to the results of earlier runs.

    find: returns the sidecar of a result that every process can find; None if there is none. Blocks.
    bury: deletes all copies of a result, given its id and its owner, and prevents later ones. Blocks.
    bury_in: does the same once the given transaction is committed.
    any_unstored: whether any of these results has not yet reached the storage where a finished job's must be. Blocks.
    now: the ledger's clock, in seconds since the epoch.
    """

    find: Callable[[str], object | None]
    bury: Callable[[str, str], object]
    bury_in: Callable[[Transaction, str, str], object]
    any_unstored: Callable[[Sequence[str]], bool] = lambda _: False
    now: Callable[[], float] = time.time

    async def results(self, job: Job) -> list[str]:
        """Return the URLs of an earlier run's results, once these are where a finished job's results must be.

        Returns an empty list if no run stored all of its results; incomplete ones are then removed. Results that other
        requests may have been given stay: the result cache answers this run with them if it can. If the storage cannot
        be read or changed now, nothing is removed, and the empty list makes the job be computed again.

        Args:
            job: the job, about to begin run number `job.attempts`; `facts["pictures"]` is the number of results a run.

        Raises:
            NotReady: code `storage_unavailable`: the storage did not accept the results by the job's deadline.
        """
        try:
            found = await asyncio.to_thread(self._take, job)
        except (ServiceError, OSError) as error:
            _log.warning("results of a job's earlier runs may not have been removed", job=job.id, error=str(error))
            return []
        while found and await self._any_unstored(found):
            if job.seconds_left(self.now()) <= 0:
                reason = (
                    "the result was computed, but the storage of results did not accept it in time; try again later"
                )
                raise NotReady(reason, code="storage_unavailable")
            await asyncio.sleep(_POLL_INTERVAL_S)
        return [url for one in found if (url := Encoded(b"", one).url)]

    async def _any_unstored(self, found: Sequence[str]) -> bool:
        try:
            return await asyncio.to_thread(self.any_unstored, found)
        except (ServiceError, OSError) as error:
            _log.warning("cannot check whether a job's results are stored; retrying", error=str(error))
            return True

    def discard(self, ledger: Transaction, job: Job) -> None:
        """Remove all results that a job's runs have stored or still store, in the transaction that ends it without."""
        try:
            owner, ids = Flow(*job.facts["flow"]).owner, _unshared(job, _ids_of_runs(job, job.attempts))
        except (KeyError, TypeError):  # a record of another version, whose job must end nevertheless
            return
        for one in ids:
            self.bury_in(ledger, one, owner)

    def _take(self, job: Job) -> list[str]:
        runs, unknown, reason = _ids_of_runs(job, job.attempts - 1), dict[int, list[str]](), None
        for run, ids in reversed(runs.items()):
            try:
                is_complete = all(self.find(one) is not None for one in ids)
            except (ServiceError, OSError) as error:
                unknown[run], reason = ids, error
                continue
            if is_complete:
                _log.info("job reuses the results of an earlier run", job=job.id)
                self._bury(job, unknown)
                return ids
        if reason is not None:
            raise reason
        self._bury(job, runs)
        return []

    def _bury(self, job: Job, runs: dict[int, list[str]]) -> None:
        owner = Flow(*job.facts["flow"]).owner
        for one in _unshared(job, runs):
            self.bury(one, owner)


def _unshared(job: Job, runs: dict[int, list[str]]) -> list[str]:
    """Return the ids of those results that no other request can have been given."""
    return [one for run, ids in runs.items() if run not in job.shared_runs for one in ids]


def _ids_of_runs(job: Job, runs: int) -> dict[int, list[str]]:
    """Return the ids of the results of a job's first `runs` runs, by run number."""
    pictures = range(job.facts.get("pictures", 1))  # jobs of old versions have no `pictures`, and other result ids
    return {run: [result_id(job.id, run, picture) for picture in pictures] for run in range(1, runs + 1)}
