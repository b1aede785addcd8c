"""Jobs: each ends in a state that can be polled, whichever process runs it."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from service.core.call import Call
from service.core.errors import InvalidImage, NotFound, NotReady, Overloaded
from service.core.order import Order
from service.jobs import jobs_table
from service.jobs.jobs_table import Job
from tests.fakes.disk import SYNCS, FailingDisk
from tests.service.jobs.processes import URLS, hang, open_process, succeed
from tests.serving.waiting import until


async def test_a_job_goes_from_queued_to_succeeded_and_has_the_urls_of_its_results(tmp_path: Path) -> None:
    async with open_process(tmp_path) as process:
        job = await process.start()
        assert job.status == "queued"
        reply = (await process.until(job.id, "succeeded")).reply()
        assert (reply.result_url, reply.result_urls) == (URLS[0], URLS)
        assert reply.created.startswith("1970-01-01T00:16:40")
        await until(lambda: not list((tmp_path / ".jobs").iterdir()))  # its order is removed when it has ended


@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled"])
async def test_the_place_of_a_job_is_free_before_its_end_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    async def fail(_order: Order, _call: Call) -> list[str]:
        raise InvalidImage("not an image")

    finish, in_flight = jobs_table.finish, list[int]()

    def counting(*arguments: Any) -> Job | None:
        in_flight.append(process.admission.in_flight)
        return finish(*arguments)

    monkeypatch.setattr(jobs_table, "finish", counting)
    run = {"succeeded": succeed, "failed": fail, "cancelled": hang}[status]
    async with open_process(tmp_path, run) as process:
        job = await process.start()
        if status == "cancelled":
            await until(lambda: bool(process.asked))
            await process.jobs.cancel(job.id)
        await process.until(job.id, status)
    assert in_flight == [0]


@pytest.mark.parametrize("found_by", ["a look", "a client that cancels it", "the server's end"])
async def test_the_order_of_a_finished_job_is_removed_in_the_background(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found_by: str
) -> None:
    """The job is found ended while the threads that remove its order are busy."""
    may_go = threading.Event()

    async def keep_threads_busy(_order: Order, _call: Call) -> list[str]:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        loop.run_in_executor(None, may_go.wait)
        return URLS

    async with open_process(tmp_path, keep_threads_busy) as process:
        job = await process.start()
        unfinished = await process.jobs.get(job.id)
        await process.until(job.id, "succeeded")
        asyncio.get_running_loop().call_later(0.3, may_go.set)
        if found_by == "a client that cancels it":
            monkeypatch.setattr(process.jobs, "get", AsyncMock(return_value=unfinished))  # an outdated read
            await process.jobs.cancel(job.id)
        await (process.jobs.close() if found_by == "the server's end" else process.jobs.stop_lost())
        await until(lambda: not list((tmp_path / ".jobs").iterdir()), 5)


async def test_a_job_runs_when_its_first_sample_is_taken_into_a_batch(tmp_path: Path) -> None:
    async with open_process(tmp_path, hang) as process:
        job = await process.start()
        await until(lambda: bool(process.asked))
        assert (await process.jobs.get(job.id)).status == "queued"
        begun = process.asked[0][1].on_begun
        assert begun is not None
        begun()
        await process.until(job.id, "running")
        await process.jobs.cancel(job.id)
        begun()
        assert (await process.jobs.get(job.id)).status == "cancelled"


async def test_a_job_of_large_pictures_does_not_count_towards_the_limit(tmp_path: Path) -> None:
    async with open_process(tmp_path, hang) as process:
        job = await process.start()
        await until(lambda: bool(process.asked))
        assert (process.admission.in_flight, process.admission.large_in_flight) == (1, 0)
        on_large = process.asked[0][1].on_large
        assert on_large is not None
        on_large()
        assert (process.admission.in_flight, process.admission.large_in_flight) == (1, 1)
        await process.jobs.cancel(job.id)
        await until(lambda: not process.admission.in_flight)
        assert process.admission.large_in_flight == 0


async def test_a_job_that_fails_keeps_its_problem(tmp_path: Path) -> None:
    async def fail(_order: Order, _call: Call) -> list[str]:
        raise InvalidImage("not an image")

    async with open_process(tmp_path, fail) as process:
        job = await process.until((await process.start()).id, "failed")
        assert job.problem is not None
        assert (job.problem["status"], job.problem["code"]) == (400, "invalid_image")
        assert (job.problem["request_id"], job.problem["instance"]) == ("request1", f"/v1/jobs/{job.id}")


async def test_a_job_that_raises_an_unexpected_error_fails(tmp_path: Path) -> None:
    async def crash(_order: Order, _call: Call) -> list[str]:
        raise RuntimeError("a bug")

    async with open_process(tmp_path, crash) as process:
        job = await process.until((await process.start()).id, "failed")
        assert job.problem is not None
        assert job.problem["status"] == 500


async def test_a_job_whose_deadline_passes_fails(tmp_path: Path) -> None:
    async with open_process(tmp_path, hang) as process:
        job = await process.until((await process.start(allowed_s=0.01)).id, "failed")
        assert job.problem is not None
        assert job.problem["code"] == "deadline_exceeded"


async def test_a_cancelled_job_stops_and_stays_cancelled_and_a_finished_one_stays_as_it_is(tmp_path: Path) -> None:
    async with open_process(tmp_path, hang) as process:
        job = await process.start()
        assert (await process.jobs.cancel(job.id)).status == "cancelled"
        await until(lambda: not process.jobs.running)
        assert (await process.jobs.get(job.id)).status == "cancelled"
    async with open_process(tmp_path) as process:
        job = await process.start()
        await process.until(job.id, "succeeded")
        assert (await process.jobs.cancel(job.id)).status == "succeeded"


async def test_a_finished_job_is_forgotten_after_its_time_and_an_unfinished_one_is_not(tmp_path: Path) -> None:
    async with open_process(tmp_path) as process, open_process(tmp_path, hang) as other:
        done, hanging = await process.start(), await other.start()
        await process.until(done.id, "succeeded")
        process.clock.now += 61.0
        for _ in range(2):
            with pytest.raises(NotFound, match="60 s"):
                await process.jobs.get(done.id)
            assert (await process.jobs.get(hanging.id)).finished_at is None
            await process.jobs.forget()


async def test_no_more_jobs_are_unfinished_than_allowed_over_all_processes(tmp_path: Path) -> None:
    async with open_process(tmp_path, hang) as other, open_process(tmp_path, max_jobs=1) as process:
        job = await other.start()
        with pytest.raises(Overloaded, match="1 unfinished jobs are the limit") as refusal:
            await process.start()
        assert refusal.value.retry_after_s is not None
        assert len(list((tmp_path / ".jobs").iterdir())) == 1, "nothing of the refused one is kept"
        await other.jobs.cancel(job.id)
        await process.until((await process.start()).id, "succeeded")


async def test_a_request_that_cannot_be_stored_is_not_a_job(tmp_path: Path) -> None:
    (tmp_path / ".jobs").write_bytes(b"")
    async with open_process(tmp_path) as process:
        with pytest.raises(NotReady) as refusal:
            await process.start()
        assert refusal.value.code == "storage_unavailable"
        assert process.asked == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
async def test_while_the_disk_fails_no_job_is_accepted_and_nothing_is_stored(tmp_path: Path, code: int) -> None:
    disk = FailingDisk()
    async with open_process(tmp_path, disk=disk) as process:
        disk.fail(code, SYNCS)
        for _ in range(2):
            with pytest.raises(NotReady) as refusal:
                await process.start()
            assert refusal.value.code == "storage_unavailable"
        assert disk.asked.count("write") == 1, "the second is refused before anything is written"
        assert list((tmp_path / ".jobs").iterdir()) == []
        disk.mend()
        assert process.disk.probe_if_suspected()
        await process.until((await process.start()).id, "succeeded")


async def test_every_process_can_read_and_cancel_all_jobs(tmp_path: Path) -> None:
    async with open_process(tmp_path, hang) as one, open_process(tmp_path) as other:
        job = await one.start()
        assert (await other.jobs.get(job.id)).status == "queued"
        await other.jobs.take()
        assert other.asked == [], "it lives"
        assert (await other.jobs.cancel(job.id)).status == "cancelled"
        assert one.jobs.running
        await one.jobs.stop_lost()
        await until(lambda: not one.jobs.running)


async def test_a_job_ends_even_if_the_ledger_could_not_be_written_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish, failures = jobs_table.finish, [3]

    def failing(*arguments: Any) -> Job | None:
        if failures[0]:
            failures[0] -= 1
            raise sqlite3.OperationalError("database or disk is full")
        return finish(*arguments)

    monkeypatch.setattr(jobs_table, "finish", failing)
    async with open_process(tmp_path) as process:
        await process.until((await process.start()).id, "succeeded")
    assert failures == [0]
