"""Builds the jobs from the settings, and looks after them while the server runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count

import structlog

from service.admission import Admission
from service.errors import ServiceError
from service.items import Call
from service.jobs.jobs import JobLimits, JobParts, Jobs
from service.jobs.kept_orders import KeptOrders
from service.ledger.database import Database
from service.orders import Order
from service.pipeline import Pipeline
from service.replies import result_url
from service.saving.owners import Owner

_log = structlog.get_logger(__name__)
_LOOK_EVERY_S = 0.5
_FORGET_EVERY = 120
"""Looks."""


@asynccontextmanager
async def open_jobs(pipeline: Pipeline, ledger: Database, owner: Owner, loaded: asyncio.Event) -> AsyncIterator[Jobs]:
    """The jobs of this process; those of dead ones are taken up once the models are `loaded`."""
    settings = pipeline.settings

    async def fulfil(order: Order, call: Call) -> list[str]:
        reply = await order.fulfil(pipeline, call)
        return [url for picture in reply.pictures if (url := result_url(picture))]

    parts = JobParts(
        ledger=ledger,
        kept=KeptOrders(settings.results_dir),
        owner=owner,
        admission=pipeline.admission,
        fulfil=fulfil,
        clock=pipeline.clock,
        now=time.time,
        new_id=pipeline.new_id,
    )
    jobs = Jobs(parts, JobLimits(settings.max_jobs, settings.job_ttl_s))
    looking = asyncio.create_task(_look_after(jobs, pipeline.admission, loaded))
    try:
        yield jobs
    finally:
        looking.cancel()
        with suppress(asyncio.CancelledError):
            await looking
        await jobs.close()


async def _look_after(jobs: Jobs, admission: Admission, loaded: asyncio.Event) -> None:
    await loaded.wait()
    for look in count():
        try:
            await jobs.stop_cancelled()
            if not admission.draining.is_set():
                await jobs.inherit()
            if look % _FORGET_EVERY == 0:
                await jobs.forget()
        except ServiceError as error:
            _log.warning("the jobs cannot be looked after; it is tried again", error=str(error))
        await asyncio.sleep(_LOOK_EVERY_S)
