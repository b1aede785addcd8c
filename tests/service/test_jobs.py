"""Asynchronous requests: every one ends in a state that can be polled."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import count

import pytest

from service.errors import InvalidImage, NotFound, Overloaded
from service.jobs import Job, Jobs


@dataclass
class FakeClock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def make_jobs(clock: FakeClock | None = None, max_jobs: int = 10) -> Jobs:
    numbers = count(1)
    return Jobs(
        max_jobs,
        60.0,
        clock or FakeClock(),
        lambda: datetime(2026, 1, 2, tzinfo=timezone.utc),
        lambda: f"job{next(numbers)}",
        lambda: 7,
    )


async def succeed(job: Job) -> list[str]:
    job.status = "running"
    return [f"/v1/results/{job.id}", "/v1/results/second"]


async def hang(_job: Job) -> list[str]:
    await asyncio.sleep(3600)
    return []


async def test_a_job_goes_from_queued_to_succeeded_and_tells_where_its_result_is() -> None:
    jobs = make_jobs()
    job = jobs.start(succeed, "request1")
    assert job.reply().status == "queued"
    assert job.task is not None
    await job.task
    reply = jobs.get(job.id).reply()
    assert (reply.status, reply.result_url) == ("succeeded", "/v1/results/job1")
    assert reply.result_urls == ["/v1/results/job1", "/v1/results/second"]
    assert reply.created.startswith("2026-01-02")


async def test_a_job_that_fails_keeps_its_problem() -> None:
    async def fail(_job: Job) -> list[str]:
        raise InvalidImage("not an image")

    jobs = make_jobs()
    job = jobs.start(fail, "request1")
    assert job.task is not None
    await job.task
    reply = job.reply()
    assert reply.status == "failed"
    assert reply.problem is not None
    assert (reply.problem["status"], reply.problem["code"]) == (400, "invalid_image")
    assert (reply.problem["request_id"], reply.problem["instance"]) == ("request1", f"/v1/jobs/{job.id}")


async def test_a_job_that_breaks_for_a_reason_of_ours_fails_too() -> None:
    async def crash(_job: Job) -> list[str]:
        raise RuntimeError("a bug")

    jobs = make_jobs()
    job = jobs.start(crash, "request1")
    assert job.task is not None
    await job.task
    assert job.reply().status == "failed"
    assert job.problem is not None
    assert job.problem["status"] == 500


@pytest.mark.parametrize("begun", [False, True])
async def test_a_cancelled_job_stops_and_stays_cancelled(begun: bool) -> None:
    jobs = make_jobs()
    job = jobs.start(hang, "request1")
    if begun:
        await asyncio.sleep(0)
    assert jobs.cancel(job.id).status == "cancelled"
    assert job.task is not None
    await asyncio.wait({job.task})
    assert jobs.get(job.id).status == "cancelled"
    assert jobs.unfinished == 0


async def test_cancelling_a_finished_job_changes_nothing() -> None:
    jobs = make_jobs()
    job = jobs.start(succeed, "request1")
    assert job.task is not None
    await job.task
    assert jobs.cancel(job.id).status == "succeeded"


async def test_a_finished_job_is_forgotten_after_its_time_and_an_unfinished_one_is_not() -> None:
    clock = FakeClock()
    jobs = make_jobs(clock)
    done, running = jobs.start(succeed, "request1"), jobs.start(hang, "request1")
    assert done.task is not None
    await done.task
    clock.now = 61.0
    with pytest.raises(NotFound, match="60 s"):
        jobs.get(done.id)
    assert jobs.get(running.id).finished_at is None
    jobs.cancel(running.id)


async def test_no_more_jobs_are_kept_than_allowed() -> None:
    jobs = make_jobs(max_jobs=1)
    job = jobs.start(hang, "request1")
    with pytest.raises(Overloaded) as refusal:
        jobs.start(hang, "request1")
    assert refusal.value.retry_after_s == 7
    jobs.cancel(job.id)


async def test_finished_jobs_make_room_for_new_ones_the_oldest_first() -> None:
    clock = FakeClock()
    jobs = make_jobs(clock, max_jobs=2)
    done = []
    for _ in range(3):
        clock.now += 1
        done.append(jobs.start(succeed, "request1"))
        task = done[-1].task
        assert task is not None
        await task
    with pytest.raises(NotFound):
        jobs.get(done[0].id)
    assert [jobs.get(job.id).status for job in done[1:]] == ["succeeded", "succeeded"]


async def test_a_job_runs_when_its_first_sample_is_taken_into_a_batch() -> None:
    jobs = make_jobs()
    job = jobs.start(hang, "request1")
    await asyncio.sleep(0)
    assert job.status == "queued"
    job.begin()
    assert job.status == "running"
    jobs.cancel(job.id)
    job.begin()
    assert job.status == "cancelled"
