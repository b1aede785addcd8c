"""Stand-ins for processes that share a ledger and run jobs, all in the test's process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import uuid4

from service.admission.admission import Admission, AdmissionRequest
from service.core.call import Call
from service.core.flow import Flow
from service.core.order import Order
from service.core.schemas import InpaintOptions
from service.jobs import jobs_table, webhook_table
from service.jobs.earlier_runs import EarlierRuns
from service.jobs.job_parts import JobLimits, JobParts
from service.jobs.job_queue import HostQueue
from service.jobs.jobs import Jobs
from service.jobs.jobs_table import Job
from service.jobs.request_files import LocalOrderFiles
from service.ledger.database import Database
from service.ledger.sqlite_file import LEDGER_FILE, SqliteFile
from service.saving.local_disk.disk import Disk
from service.saving.local_disk.disk_state import DiskState
from service.saving.spool.process_folder import SpoolOwner
from tests.fakes.clock import Clock

Run = Callable[[Order, Call], Awaitable[list[str]]]


ORDER = Order("inpaint", {"image": b"image", "mask": b"mask"}, InpaintOptions.model_validate({"quality": "80"}))


NONE_BEFORE = EarlierRuns(lambda _: None, lambda _, __: None, lambda _, __, ___: None)
"""EarlierRuns without stored results."""
URLS = ["/v1/results/first", "/v1/results/second"]


@dataclass
class JobsProcess:
    """One such process: its jobs, the orders that it was asked to compute, and its admission."""

    jobs: Jobs
    owner: SpoolOwner
    admission: Admission
    clock: Clock
    disk: DiskState
    ledger: Database
    asked: list[tuple[Order, Call]] = field(default_factory=list)

    async def start(self, allowed_s: float = 60.0, repeat_key: str | None = None) -> Job:
        flow = Flow("someone", 7)
        with ExitStack() as admitted:
            admitted_request = admitted.enter_context(self.admission.admit(AdmissionRequest(allowed_s, flow=flow)))
            self.admission.count_in_flight(admitted_request)
            on_large = partial(self.admission.mark_large, admitted_request)
            end = self.clock() + allowed_s
            call = Call("request1", self.clock(), end, flow, on_large=on_large, repeat_key=repeat_key)
            return await self.jobs.start(ORDER, call, {}, admitted)

    async def until(self, job_id: str, *statuses: str) -> Job:
        for _ in range(2000):
            job = await self.jobs.get(job_id)
            if job.status in statuses:
                return job
            await asyncio.sleep(0.005)
        raise AssertionError(f"{job.status} instead of {statuses}")


async def succeed(_order: Order, call: Call) -> list[str]:
    assert call.on_begun is not None
    call.on_begun()
    return URLS


async def hang(_order: Order, _call: Call) -> list[str]:
    await asyncio.sleep(3600)
    return []


@asynccontextmanager
async def open_process(
    root: Path,
    run: Run = succeed,
    max_jobs: int = 10,
    disk: Disk | None = None,
    orders: LocalOrderFiles | None = None,
    earlier: EarlierRuns = NONE_BEFORE,
    *,
    served: Collection[str] = ("photos",),
) -> AsyncIterator[JobsProcess]:
    """Run the jobs of a process that shares `root` with others; leaving the block is a crash, without clean-up."""
    owner, clock, admission, state = SpoolOwner(root, lambda: uuid4().hex), Clock(), Admission(8), DiskState(root)
    owner.create()
    with Database(SqliteFile(root / LEDGER_FILE, [jobs_table.SCHEMA, webhook_table.SCHEMA]), retry_s=0.001) as ledger:

        async def remembering(order: Order, call: Call) -> list[str]:
            process.asked.append((order, call))
            return await run(order, call)

        parts = JobParts(
            ledger=ledger,
            orders=orders or LocalOrderFiles(root, disk),
            disk=state,
            owner=owner,
            queue=HostQueue(ledger, owner, clock),
            earlier=earlier,
            admission=admission,
            run=remembering,
            clock=clock,
            now=clock,
            new_id=lambda: uuid4().hex,
            served=lambda: served,
            model_of=lambda _: "photos",
        )
        process = JobsProcess(Jobs(parts, JobLimits(max_jobs, 60.0)), owner, admission, clock, state, ledger)
        try:
            yield process
        finally:
            for task in process.jobs.running.values():
                task.cancel()
            await asyncio.gather(*process.jobs.running.values(), return_exceptions=True)
            owner.unlock_folder()
