"""Asynchronous requests: started with `Prefer: respond-async` (RFC 7240), polled, cancelled. In memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog

from service.errors import NotFound, Overloaded, ServiceError
from service.schemas import JobReply, JobStatus

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class Job:
    """One asynchronous request; `status` only moves forward."""

    id: str
    request_id: str
    created: datetime
    status: JobStatus = "queued"
    result_urls: list[str] = field(default_factory=list)
    problem: dict[str, Any] | None = None
    finished_at: float | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    def begin(self) -> None:
        """Its first sample was taken into a batch."""
        if self.status == "queued":
            self.status = "running"

    def reply(self) -> JobReply:
        return JobReply(
            id=self.id,
            status=self.status,
            created=self.created.isoformat(),
            result_url=self.result_urls[0] if self.result_urls else None,
            result_urls=self.result_urls,
            problem=self.problem,
        )


@dataclass(slots=True)
class Jobs:
    """The table of jobs; finished ones are forgotten after `ttl_s`. Used on the event loop only."""

    max_jobs: int
    ttl_s: float
    clock: Callable[[], float]
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    retry_after_s: Callable[[], float]
    """When a client that was refused should come back."""
    _jobs: dict[str, Job] = field(default_factory=dict)

    @property
    def unfinished(self) -> int:
        """Jobs that are queued or running."""
        return sum(job.finished_at is None for job in self._jobs.values())

    def start(self, work: Callable[[Job], Coroutine[Any, Any, list[str]]], request_id: str) -> Job:
        """Run `work`, which returns the results' URLs, as a job.

        Raises:
            Overloaded: `max_jobs` are unfinished. Finished ones make room, the oldest first.
        """
        self._forget()
        if self.unfinished >= self.max_jobs:
            raise Overloaded(f"{self.max_jobs} jobs are unfinished", retry_after_s=self.retry_after_s())
        if len(self._jobs) >= self.max_jobs:
            finished = [job for job in self._jobs.values() if job.finished_at is not None]
            del self._jobs[min(finished, key=lambda job: job.finished_at or 0.0).id]
        job = Job(self.new_id(), request_id, self.now())
        self._jobs[job.id] = job
        job.task = asyncio.get_running_loop().create_task(self._run(job, work))
        return job

    def get(self, job_id: str) -> Job:
        """The job of that id.

        Raises:
            NotFound: there never was one, it was deleted, or it finished longer than `ttl_s` ago.
        """
        self._forget()
        try:
            return self._jobs[job_id]
        except KeyError:
            raise NotFound(f"no job {job_id!r}; finished jobs are kept for {self.ttl_s:.0f} s") from None

    def cancel(self, job_id: str) -> Job:
        """Stop a job that is not finished; the engine does not compute it if it has not begun.

        Raises:
            NotFound: as `get`.
        """
        job = self.get(job_id)
        if job.finished_at is None and job.task is not None:
            job.task.cancel()
            self._finish(job, "cancelled")
        return job

    async def _run(self, job: Job, work: Callable[[Job], Coroutine[Any, Any, list[str]]]) -> None:
        try:
            job.result_urls = await work(job)
        except ServiceError as error:
            job.problem = error.problem(job.request_id, f"/v1/jobs/{job.id}")
            self._finish(job, "failed")
        except asyncio.CancelledError:
            self._finish(job, "cancelled")
            raise
        except Exception:  # a defect of ours must still end the job
            log.exception("job failed", job=job.id)
            error_of_ours = ServiceError("the job failed for a reason of the server's own")
            job.problem = error_of_ours.problem(job.request_id, f"/v1/jobs/{job.id}")
            self._finish(job, "failed")
        else:
            self._finish(job, "succeeded")

    def _finish(self, job: Job, status: JobStatus) -> None:
        if job.finished_at is None:
            job.status, job.finished_at = status, self.clock()
            code = job.problem["code"] if job.problem else None
            log.info("job ended", job=job.id, request_id=job.request_id, status=status, code=code)

    def _forget(self) -> None:
        limit = self.clock() - self.ttl_s
        self._jobs = {i: job for i, job in self._jobs.items() if job.finished_at is None or job.finished_at > limit}
