"""Builds the jobs from the settings, and runs their periodic tasks while the server runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from service.admission.admission import Admission
from service.batching.backend import BackendModels
from service.core.call import Call
from service.core.errors import NotReady, Overloaded, ServiceError, ShuttingDown
from service.core.lists_and_folders import listed
from service.core.order import Order
from service.core.reply import Reply
from service.core.settings import Settings
from service.jobs.job_parts import RETENTION_S, JobLimits, JobParts, JobRecords
from service.jobs.jobs import Jobs
from service.jobs.name_lookup import NameLookup
from service.jobs.webhook_signing import read_secrets
from service.jobs.webhook_targets import Destinations
from service.lifecycle.background import run_in_background
from service.pipeline import Pipeline

if TYPE_CHECKING:
    from service.jobs.delivery.sender import Deliverer

_log = structlog.get_logger(__name__)
_MAX_UNFINISHED = 1000
"""Limit of unfinished jobs across all processes: each keeps its request's files on disk."""
_DELIVER_INTERVAL_S = 0.5
_CLOCK_INTERVAL_S = 60.0
_MAX_PAUSE_S = 5.0
"""Longest pause of a job that waits for space in the spool."""
_CLEAN_UP_EVERY = 120
"""Number of periodic checks between removals of old jobs."""


@asynccontextmanager
async def open_jobs(
    pipeline: Pipeline,
    run: Callable[[Order, Call], Awaitable[Reply]],
    records: JobRecords,
    loaded: asyncio.Event,
    names: NameLookup,
) -> AsyncIterator[Jobs]:
    """Open the jobs of this process; once the models are `loaded`, it also runs the jobs of dead processes again."""
    deliverer = _make_deliverer(pipeline, records, names)

    async def urls(order: Order, call: Call) -> list[str]:
        reply = await _run_when_there_is_space(partial(run, order, call), pipeline.admission.draining)
        await records.promised([picture.result_id for picture in reply.pictures if picture.result_id])
        return [url for picture in reply.pictures if (url := picture.url)]

    parts = JobParts(
        ledger=records.ledger,
        orders=records.orders,
        disk=pipeline.store.disk,
        owner=records.owner,
        queue=records.queue,
        earlier=records.earlier,
        admission=pipeline.admission,
        run=urls,
        clock=pipeline.clock,
        now=records.now,
        new_id=pipeline.new_id,
        served=partial(served_models, pipeline.models),
        model_of=lambda order: order.options.model or pipeline.settings.default_models[order.task],
        **({"on_finished": deliverer.enqueue_job_ended} if deliverer else {}),
    )
    jobs = Jobs(parts, JobLimits(_MAX_UNFINISHED, RETENTION_S))
    loops = [maintain_jobs(jobs, pipeline.admission, loaded)]
    if deliverer:
        loops += [_deliver_webhooks(deliverer), _watch_clock(deliverer)]
    async with run_in_background(*loops):
        yield jobs
    await jobs.close()


async def _run_when_there_is_space(run: Callable[[], Awaitable[Reply]], draining: asyncio.Event) -> Reply:
    """Run a job, and retry while the spool has no space for its results; the caller cancels it at the job's deadline.

    Raises:
        ShuttingDown: the server began to drain while the job waited for space.
        ServiceError: as raised by `run`.
    """
    while True:
        try:
            return await run()
        except Overloaded as error:
            if error.code != "spool_full":
                raise
            pause_s = min(_MAX_PAUSE_S, error.retry_after_s or _MAX_PAUSE_S)
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(draining.wait(), pause_s)
            raise ShuttingDown("the server is shutting down")


def served_models(models: BackendModels) -> set[str]:
    """Return the models that jobs can be run with now, each as `name` and as `name/version`."""
    usable = [status for status in models.statuses() if status.state != "refused"]
    ready = {status.name for status in usable if status.state == "ready"}
    return ready | {f"{status.name}/{status.version}" for status in usable}


async def maintain_jobs(jobs: Jobs, admission: Admission, loaded: asyncio.Event) -> None:
    """Until cancelled: stop lost jobs, take waiting ones, and remove old jobs and orphaned requests.

    Args:
        jobs: the jobs of this process.
        admission: says whether this process drains; if so, it takes no jobs.
        loaded: set once the models are loaded; nothing happens before.
    """
    await loaded.wait()
    for run in count():
        try:
            await jobs.stop_lost()
            if not admission.draining.is_set():
                await jobs.take()
            if run % _CLEAN_UP_EVERY == 0:
                await jobs.forget()
                await jobs.drop_orphans()
        except (ServiceError, OSError) as error:  # OSError: no file descriptor is left to check an owner's lock
            _log.warning("job maintenance failed; retrying", error=str(error))
        await jobs.wait_for_change()


def webhook_destinations(settings: Settings) -> Destinations | None:
    """Return the allowed targets of webhooks; None if webhooks are off."""
    if not settings.webhook_secret_file:
        return None
    hosts = tuple(listed(settings.webhook_hosts))
    return Destinations(hosts, settings.webhook_private)


def _make_deliverer(pipeline: Pipeline, records: JobRecords, names: NameLookup) -> Deliverer | None:
    settings, destinations = pipeline.settings, webhook_destinations(pipeline.settings)
    if destinations is None:
        return None
    from service.jobs.delivery.sender import Deliverer  # noqa: PLC0415 -- aiohttp is a tenth of what a start imports

    secrets = read_secrets(Path(settings.webhook_secret_file))
    return Deliverer(records.ledger, secrets, destinations, pipeline.metrics, records.now, names)


async def _deliver_webhooks(deliverer: Deliverer) -> None:
    while True:
        try:
            tried = await deliverer.deliver_due()
        except Exception as error:  # one error must not end all deliveries
            tried = 0
            _log.warning("webhook delivery failed; retrying", error=repr(error))
        if not tried:
            await asyncio.sleep(_DELIVER_INTERVAL_S)


async def _watch_clock(deliverer: Deliverer) -> None:
    while True:
        with suppress(NotReady):  # the deliveries log it
            await deliverer.make_due_after_clock_change()
        await asyncio.sleep(_CLOCK_INTERVAL_S)
