"""Asynchronous requests: started with `Prefer: respond-async` (RFC 7240), polled, cancelled; they survive restarts.

A job is durable before it is accepted: its state is in the ledger, its request where every process that may run it can
read it. One process runs it (see `JobQueue`). If that process ends, another runs the job again, but after crashes at
most `max_attempts` times, so that one request cannot crash all processes. Any process can report the job's state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import structlog

from service.admission.admission import AdmissionRequest
from service.admission.deadline import await_with_deadline
from service.core.call import Call, OnLarge
from service.core.errors import NotFound, NotReady, Overloaded, ServiceError, ShuttingDown
from service.core.flow import Flow
from service.core.order import Order
from service.core.schemas import JobStatus
from service.jobs import jobs_table
from service.jobs.earlier_runs import result_id
from service.jobs.job_parts import JobLimits, JobParts
from service.jobs.jobs_table import Job
from service.jobs.orphans import Orphans
from service.ledger.contract import Transaction
from service.saving.storage.contract import is_result_id

log = structlog.get_logger(__name__)
_READ_RETRY_S = 1.0
_END_S = 2.0
"""Longest wait of an ending process until its computed jobs are recorded as ended; other jobs are run again."""


class Jobs:
    """The jobs that this process runs, and access to those of all processes. Used on the event loop."""

    def __init__(self, parts: JobParts, limits: JobLimits) -> None:
        self._parts, self._limits, self._orphans = parts, limits, Orphans(parts)
        self.running: dict[str, asyncio.Task[None]] = {}  # the jobs of this process, by id
        self._admissions: dict[str, ExitStack] = {}  # their admissions, by id
        self._ending: set[str] = set()  # ids of jobs whose end is being recorded; their tasks are not stopped
        self._entering: dict[str, str] = {}  # owners of the jobs that are being inserted in the ledger, by id

    async def start(self, order: Order, call: Call, facts: dict[str, Any], admitted: ExitStack) -> Job:
        """Accept a request as a job, which stays admitted until it ends.

        Args:
            order: the request.
            call: the request's client, deadline and repeat key; an existing job with that key is returned.
            facts: JSON values that are stored with the job.
            admitted: holds the request's admission; closed when the job has ended. The caller keeps it if this method
                raises, or if the job existed or is left to any process.

        Raises:
            Overloaded: too many jobs are unfinished.
            NotReady: code `storage_unavailable`, `ledger_unavailable`: the disk or the ledger rejects writes now.
        """
        parts, job_id = self._parts, self._parts.new_id()
        parts.disk.refuse_if_failing()
        facts = {
            **facts,
            **({"traceparent": call.traceparent} if call.traceparent else {}),
            "request_id": call.request_id,
            "deadline_at": parts.now() + call.deadline - parts.clock(),
            "flow": list(call.flow),
            "pictures": order.options.pictures,
            "model": parts.model_here(order),
        }
        owner_id = parts.queue.owner_of_new(len(self.running) + len(self._entering))
        new = Job(job_id, "queued", owner_id, parts.now(), facts, attempts=1 if owner_id else 0)
        job, entered = await self._enter(new, order, call.repeat_key)
        if entered is None or entered.id != job_id:
            await asyncio.to_thread(parts.orders.drop, job_id)
        if entered is None:
            message = f"{self._limits.max_unfinished} unfinished jobs are the limit; try again later"
            raise Overloaded(message, retry_after_s=parts.admission.retry_after_s())
        if entered is job and job.owner:
            self._launch(job, admitted.pop_all(), partial(self._compute, job, order, call.on_large))
        return entered

    async def _enter(self, new: Job, order: Order, request_key: str | None) -> tuple[Job, Job | None]:
        """Store the order, then the job, whose creation time is that of the insertion. See `start` for errors.

        Returns the job, and what `jobs_table.insert` returns for it. The order stays if the ledger fails, as the job
        may have been inserted nevertheless; if not, `drop_orphans` removes the order.
        """
        parts, limit = self._parts, self._limits.max_unfinished
        self._entering[new.id] = new.owner
        try:
            await asyncio.to_thread(parts.orders.keep, new.id, order)
            job = replace(new, created_at=parts.now())
            insert = partial(jobs_table.insert, job=job, max_unfinished=limit, request_key=request_key)
            return job, await parts.ledger.write(insert)
        except OSError as error:
            raise parts.disk.record_failure(error, sum(map(len, order.files.values()))) from error
        finally:
            del self._entering[new.id]

    async def get(self, job_id: str) -> Job:
        """Return the job of that id, whichever process runs it.

        Raises:
            NotFound: there is no such job, or it finished more than `ttl_s` ago.
        """
        oldest = self._parts.now() - self._limits.ttl_s
        find = partial(jobs_table.find, job_id=job_id, finished_after=oldest)
        job = await self._parts.ledger.read(find) if is_result_id(job_id) else None
        if job is None:
            raise NotFound(f"no job {job_id[:80]!r}; finished jobs are kept for {self._limits.ttl_s:.0f} s")
        return job

    async def cancel(self, job_id: str) -> Job:
        """Stop a job that is not finished; a job that has not begun is not computed.

        Raises:
            NotFound: as raised by `get`.
        """
        job = await self.get(job_id)
        self._admissions.get(job_id, ExitStack()).close()  # first, as in `_run_to_end`
        if job.finished_at is None and await self._record_end(job, "cancelled", discards=True) is not None:
            self._stop(job_id)
        return await self.get(job_id)

    async def take(self) -> None:
        """Run jobs that wait for a process, such as those of dead ones; called once the models are loaded."""
        entering = {job_id for job_id, owner in self._entering.items() if owner}  # `start` launches them
        for job in await self._parts.queue.take(self.running.keys() | entering, self._parts.served()):
            log.info("job claimed", job=job.id, attempts=job.attempts)
            admitted = ExitStack()
            self._launch(job, admitted, partial(self._run_again, job, admitted))

    async def stop_lost(self) -> None:
        """Stop jobs that were cancelled through another process, or inherited by one."""
        if self.running:
            lost = partial(jobs_table.lost_among, job_ids=list(self.running), owner=self._parts.owner.id)
            for job_id in await self._parts.ledger.read(lost) - self._ending:
                self._stop(job_id)

    async def wait_for_change(self) -> None:
        """Wait until there may be jobs to take or to stop; a short time at most."""
        await self._parts.queue.pause()

    async def forget(self) -> None:
        """Remove jobs that finished more than `ttl_s` ago."""
        oldest = self._parts.now() - self._limits.ttl_s
        await self._parts.ledger.write(partial(jobs_table.forget, finished_before=oldest))

    async def drop_orphans(self) -> None:
        """See `Orphans.drop`."""
        await self._orphans.drop()

    async def close(self) -> None:
        """Wait briefly for ends that are being recorded, then stop all jobs and give back unfinished ones."""
        if ending := [task for job_id, task in self.running.items() if job_id in self._ending]:
            await asyncio.wait(ending, timeout=_END_S)
        tasks, stopped = list(self.running.values()), self.running.keys() - self._ending
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if stopped:
            with suppress(NotReady, asyncio.TimeoutError):  # without the ledger they count as crashed
                await asyncio.wait_for(self._parts.queue.give_back(list(stopped)), _END_S)

    async def _run_to_end(self, job: Job, admitted: ExitStack, run: Callable[[], Awaitable[list[str]]]) -> None:
        """Run a job, release its admission and record its end, in this order, so that pollers find its place free."""
        try:
            with admitted:
                urls = await run()
        except ShuttingDown:
            with self._until_ended(job):
                await self._parts.queue.give_back([job.id])
        except ServiceError as error:
            await self._record_failure(job, error)
        except Exception:  # a bug, or a record of another version, must still end the job
            log.exception("job failed", job=job.id)
            await self._record_failure(job, ServiceError("internal server error; the server's log has the details"))
        else:
            await self._end(job, "succeeded", result_urls=urls)

    async def _run_again(self, job: Job, admitted: ExitStack) -> list[str]:
        if earlier := await self._parts.earlier.results(job):
            return earlier
        if job.attempts - job.given_back > self._limits.max_attempts:
            times = f"the server died {self._limits.max_attempts} times while it ran this job"
            raise ServiceError(f"{times}; report it to the operator", code="job_crashed")
        self._parts.refuse_if_too_late_for_model(job)
        on_large = await self._await_admission(job, admitted)
        return await self._compute(job, await self._read_order(job), on_large)  # read last: many may wait

    async def _read_order(self, job: Job) -> Order:
        """Read the stored order; while its storage is unavailable, retry until the job's deadline.

        Raises:
            ShuttingDown: the server drains; another process, or this one after its restart, runs the job.
            NotReady, ServiceError: as raised by `OrderFiles.find`.
        """
        while True:
            try:
                return await asyncio.to_thread(self._parts.orders.find, job.id)
            except NotReady:  # noqa: PERF203 -- the loop is for retries
                if job.seconds_left(self._parts.now()) <= 0:
                    raise
                if self._parts.admission.draining.is_set():
                    raise ShuttingDown("the server is shutting down") from None
                await asyncio.sleep(_READ_RETRY_S)

    async def _await_admission(self, job: Job, admitted: ExitStack) -> OnLarge | None:
        """Wait for admission and return the callback for large pictures; None once the job's deadline has passed."""
        admission, flow = self._parts.admission, Flow(*job.facts["flow"])
        while True:
            allowed_s = max(0.0, job.seconds_left(self._parts.now()))
            request = AdmissionRequest(allowed_s, flow=flow, request_id=job.facts["request_id"])
            try:
                admitted_request = admitted.enter_context(admission.admit(request))
                admission.count_in_flight(admitted_request)
            except Overloaded as error:
                admitted.close()
                if not allowed_s:
                    return None  # the run reports the missed deadline
                with suppress(asyncio.TimeoutError):  # a drain ends the wait, and the job is given back
                    await asyncio.wait_for(admission.draining.wait(), error.retry_after_s or 1.0)
            else:
                return partial(admission.mark_large, admitted_request)

    async def _compute(self, job: Job, order: Order, on_large: OnLarge | None) -> list[str]:
        parts, now, left_s = self._parts, self._parts.clock(), job.seconds_left(self._parts.now())
        call = Call(
            *(job.facts["request_id"], now, now + left_s, Flow(*job.facts["flow"]), partial(self._mark_begun, job.id)),
            traceparent=job.facts.get("traceparent", ""),
            on_large=on_large,
            is_job=True,
            result_id=partial(result_id, job.id, job.attempts),
            may_share=partial(jobs_table.share, job_id=job.id, owner=parts.owner.id, attempts=job.attempts),
        )
        return await await_with_deadline(parts.run(order, call), left_s)

    async def _record_failure(self, job: Job, error: ServiceError) -> None:
        problem = error.problem(job.facts.get("request_id", ""), f"/v1/jobs/{job.id}")
        stored = error.status >= 500 and error.code not in ServiceError.further_codes  # after others, never
        await self._end(job, "failed", discards=stored, problem=problem)

    async def _end(self, job: Job, status: JobStatus, *, discards: bool = False, **ending: Any) -> None:
        """End a job that this task runs; until the end is recorded, `stop_lost` does not stop the task."""
        with self._until_ended(job):
            await self._record_end(job, status, discards=discards, **ending)

    @contextmanager
    def _until_ended(self, job: Job) -> Iterator[None]:
        """Within this block `stop_lost` does not stop the job's task, and `close` waits for it."""
        self._ending.add(job.id)
        try:
            yield
        finally:
            self._ending.discard(job.id)

    async def _record_end(self, job: Job, status: JobStatus, *, discards: bool = False, **ending: Any) -> Job | None:
        """Record an end and remove the stored request; returns the job, or None if `jobs_table.finish` refused it.

        `discards`: remove the job's results, too, unless it is refused.
        """
        finished = replace(job, status=status, finished_at=self._parts.now(), **ending)

        def finish(ledger: Transaction) -> Job | None:
            if (first := jobs_table.finish(ledger, finished)) is not None:
                self._parts.on_finished(ledger, finished)
                if discards:
                    self._parts.earlier.discard(ledger, first)
            return first

        if (first := await self._parts.ledger.write_until_done(finish)) is not None:
            code = (finished.problem or {}).get("code")
            log.info("job ended", job=job.id, request_id=job.facts.get("request_id"), status=status, code=code)
            await asyncio.to_thread(self._parts.orders.drop, job.id)  # another process's job keeps its request
        return first

    def _mark_begun(self, job_id: str) -> None:
        written = self._parts.ledger.write(partial(jobs_table.begin, job_id=job_id))
        written.add_done_callback(lambda done: done.exception())  # failures are ignored: only pollers see it

    def _launch(self, job: Job, admitted: ExitStack, run: Callable[[], Awaitable[list[str]]]) -> None:
        self._admissions[job.id] = admitted
        self.running[job.id] = task = asyncio.create_task(self._run_to_end(job, admitted, run))
        task.add_done_callback(partial(self._forget_task, job.id))

    def _forget_task(self, job_id: str, task: asyncio.Task[None]) -> None:
        del self.running[job_id], self._admissions[job_id]
        if not task.cancelled():
            task.exception()  # marks it as retrieved; the ledger logged it, and another process runs the job
        self._parts.queue.slot_freed()

    def _stop(self, job_id: str) -> None:
        if (task := self.running.get(job_id)) is not None:
            task.cancel()
