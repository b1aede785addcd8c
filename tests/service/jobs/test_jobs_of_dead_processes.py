"""A job whose process ended is run again by exactly one other process, or given up."""

from __future__ import annotations

import asyncio
import errno
import json
import sqlite3
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from service.core.call import Call
from service.core.errors import NotReady, ShuttingDown
from service.core.flow import Flow
from service.core.order import Order
from service.jobs import jobs_table
from service.jobs.assembly import maintain_jobs
from service.jobs.request_files import LocalOrderFiles
from service.ledger.contract import Transaction
from service.lifecycle.background import run_in_background
from tests.service.jobs.processes import ORDER, hang, open_process
from tests.serving.waiting import until


async def test_the_job_of_a_dead_process_is_run_again_by_another_with_its_order(tmp_path: Path) -> None:
    async with open_process(tmp_path) as successor:
        async with open_process(tmp_path, hang) as dying:
            job = await dying.start()
            await until(lambda: bool(dying.asked))
        assert (await successor.jobs.get(job.id)).finished_at is None
        await successor.jobs.take()
        await successor.until(job.id, "succeeded")
        order, call = successor.asked[0]
        assert order == ORDER
        assert (call.request_id, call.flow, call.deadline) == ("request1", Flow("someone", 7), 1060.0)
        await until(lambda: not successor.admission.in_flight)


async def test_a_job_that_is_started_again_with_its_key_is_the_one_that_was_there(tmp_path: Path) -> None:
    async with open_process(tmp_path, hang) as dying:
        first = await dying.start(repeat_key="key")
    async with open_process(tmp_path) as process:
        assert await process.start(repeat_key="key") == first
        assert process.asked == []  # the repeat runs nothing; `take` does, as for any job of a dead process
        await process.jobs.take()
        finished = await process.until(first.id, "succeeded")
        assert await process.start(repeat_key="key") == finished
        assert [order for order, _ in process.asked] == [ORDER]
        await until(lambda: not list((tmp_path / ".jobs").iterdir()))


async def test_of_two_processes_that_start_the_same_job_at_once_one_does(tmp_path: Path) -> None:
    async with open_process(tmp_path, hang) as one, open_process(tmp_path, hang) as other:
        jobs = await asyncio.gather(one.start(3600.0, repeat_key="key"), other.start(3600.0, repeat_key="key"))
        assert jobs[0] == jobs[1]
        assert len(one.jobs.running) + len(other.jobs.running) == 1
        assert [path.name for path in (tmp_path / ".jobs").iterdir()] == [jobs[0].id]
        await one.jobs.cancel(jobs[0].id)
        assert (await other.start(repeat_key="key")).status == "cancelled"
        assert not list((tmp_path / ".jobs").iterdir())


async def test_a_job_that_crashes_its_processes_fails_after_the_last_attempt(tmp_path: Path) -> None:
    async with open_process(tmp_path, hang) as dying:
        job = await dying.start()
    for _ in range(2):
        async with open_process(tmp_path, hang) as dying:
            await dying.jobs.take()
            await until(lambda: bool(dying.asked))
    async with open_process(tmp_path) as last:
        await last.jobs.take()
        given_up = await last.until(job.id, "failed")
        assert last.asked == []
        assert given_up.problem is not None
        assert given_up.problem["code"] == "job_crashed"


async def test_a_job_is_left_to_a_process_that_has_its_model(tmp_path: Path) -> None:
    async with open_process(tmp_path, hang, served={"photos"}) as dying:
        job = await dying.start()
    async with (
        open_process(tmp_path, served={"facades"}) as other,
        open_process(tmp_path, served={"photos"}) as successor,
    ):
        await other.jobs.take()
        assert not other.jobs.running
        await successor.jobs.take()
        assert (await successor.until(job.id, "succeeded", "failed")).status == "succeeded"


@pytest.mark.parametrize("served", [{"facades"}, set()], ids=["other models", "no models"])
async def test_an_overdue_job_is_ended_even_by_a_process_without_its_model(tmp_path: Path, served: set[str]) -> None:
    async with open_process(tmp_path, hang, served={"photos"}) as dying:
        job = await dying.start(allowed_s=60.0)
    async with open_process(tmp_path, hang, served=served) as other:
        loaded = asyncio.Event()
        loaded.set()
        async with run_in_background(maintain_jobs(other.jobs, other.admission, loaded)):
            await asyncio.sleep(0.05)
            assert not other.jobs.running
            other.clock.now += 61
            ended = await other.until(job.id, "succeeded", "failed")
        assert ended.problem is not None
        assert ended.problem["code"] == "deadline_exceeded"
        assert "no server with the model photos started the job" in ended.problem["detail"]


async def test_a_claimed_job_has_its_time_even_if_its_model_has_just_gone(tmp_path: Path) -> None:
    served = {"photos"}
    async with open_process(tmp_path, hang) as dying:
        job = await dying.start()
    async with open_process(tmp_path, served=served) as successor:
        await successor.jobs.take()
        served.clear()  # a reload may follow, and the computation reports a model that stays missing
        assert (await successor.until(job.id, "succeeded", "failed")).status == "succeeded"


async def test_a_job_without_a_known_model_is_claimed_by_any_process(tmp_path: Path) -> None:
    """Even a process without the model takes it, so that the job ends soon with an error that says what is wrong."""
    async with open_process(tmp_path, hang, served={"facades"}) as dying:
        job = await dying.start()
    async with open_process(tmp_path, served={"faces"}) as successor, open_process(tmp_path, served=()) as empty:
        await empty.jobs.take()
        assert not empty.jobs.running, "a host that has yet to fetch its models"
        await successor.jobs.take()
        assert (await successor.until(job.id, "succeeded", "failed")).status == "succeeded"


class UnavailableOrders(LocalOrderFiles):
    """Orders that are stored but cannot be read at present."""

    def find(self, job_id: str) -> Order:
        raise NotReady(f"the order of {job_id} cannot be read now", code="storage_unavailable")


async def test_a_drain_requeues_a_job_whose_order_cannot_be_read_now(tmp_path: Path) -> None:
    async with open_process(tmp_path, hang) as dying:
        job = await dying.start()
    async with open_process(tmp_path, orders=UnavailableOrders(tmp_path)) as successor:
        await successor.jobs.take()
        await until(lambda: successor.admission.in_flight == 1)
        successor.admission.draining.set()
        await until(lambda: successor.admission.in_flight == 0)
        assert (await successor.jobs.get(job.id)).status == "queued"
    async with open_process(tmp_path) as other:
        await other.jobs.take()
        await other.until(job.id, "succeeded")


async def test_a_job_whose_order_was_deleted_fails_with_order_lost(tmp_path: Path) -> None:
    async with open_process(tmp_path, hang) as dying:
        job = await dying.start()
    (tmp_path / ".jobs" / job.id / "order.json").unlink()
    async with open_process(tmp_path) as successor:
        await successor.jobs.take()
        lost = await successor.until(job.id, "failed")
        assert lost.problem is not None
        assert lost.problem["code"] == "order_lost"


async def test_a_job_that_a_draining_process_did_not_begin_is_left_to_the_next(tmp_path: Path) -> None:
    async def refuse(_order: Order, _call: Call) -> list[str]:
        raise ShuttingDown("draining")

    async with open_process(tmp_path, refuse) as draining:
        job = await draining.start()
        await until(lambda: not draining.jobs.running)
        left = await draining.jobs.get(job.id)
        assert (left.status, left.attempts, left.given_back) == ("queued", 1, 1)
    async with open_process(tmp_path) as draining:
        draining.admission.draining.set()
        await draining.jobs.take()
        await until(lambda: not draining.jobs.running)
        assert draining.asked == []
    async with open_process(tmp_path) as successor:
        await successor.jobs.take()
        await successor.until(job.id, "succeeded")


async def test_a_claimed_job_waits_for_its_admission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_process(tmp_path, hang) as dying:
        job = await dying.start()
    slept: list[float] = []

    async def brief(until_drained: Coroutine[Any, Any, object], seconds: float) -> None:
        until_drained.close()
        slept.append(seconds)
        successor.admission.max_requests = 8
        raise asyncio.TimeoutError

    async with open_process(tmp_path) as successor:
        successor.admission.max_requests = 0
        monkeypatch.setattr("service.jobs.jobs.asyncio.wait_for", brief)
        await successor.jobs.take()
        await successor.until(job.id, "succeeded")
        assert min(slept) >= 1


async def test_restarts_while_a_job_waits_for_its_admission_are_no_crashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def for_ever(until_drained: Coroutine[Any, Any, object], _retry_after_s: float) -> object:
        return await until_drained  # a drain waits for no Retry-After

    async with open_process(tmp_path, hang) as dying:
        job = await dying.start()
    monkeypatch.setattr("service.jobs.jobs.asyncio.wait_for", for_ever)
    for _ in range(5):
        async with open_process(tmp_path) as full:
            full.admission.max_requests = 0
            await full.jobs.take()
            await until(lambda: bool(full.admission.reservations.store.due_second(("someone", "request1"))))
            full.admission.draining.set()
            await until(lambda jobs=full.jobs: not jobs.running)  # type: ignore[misc]
    async with open_process(tmp_path) as successor:
        await successor.jobs.take()
        ended = await successor.until(job.id, "succeeded", "failed")
        assert (ended.status, ended.attempts - ended.given_back) == ("succeeded", 2)


async def test_a_clean_exit_counts_as_no_crash_of_the_jobs_it_stops(tmp_path: Path) -> None:
    """Jobs that wait for memory or storage are not answered by the batcher's end, so the process must stop them."""
    async with open_process(tmp_path, hang) as first:
        jobs = [await first.start() for _ in range(3)]
        await until(lambda: len(first.asked) == 3)
        await first.jobs.close()
    for _ in range(4):
        async with open_process(tmp_path, hang) as restarted:
            await restarted.jobs.take()
            await until(lambda: len(restarted.asked) == 3)
            await restarted.jobs.close()
    async with open_process(tmp_path) as last:
        await last.jobs.take()
        assert {(await last.until(job.id, "succeeded", "failed")).status for job in jobs} == {"succeeded"}
        numbers = {call.result_id(0) for one in (first, restarted, last) for _, call in one.asked if call.result_id}
        assert len(numbers) == 9, "each run has results of its own"


async def test_a_process_that_ends_does_not_wait_for_an_unavailable_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    async with open_process(tmp_path, hang) as ending:
        job = await ending.start()
        await until(lambda: bool(ending.asked))
        with monkeypatch.context() as broken:
            broken.setattr(jobs_table, "give_back", away)
            await ending.jobs.close()
        assert not ending.jobs.running
    async with open_process(tmp_path) as successor:
        await successor.jobs.take()
        assert (await successor.until(job.id, "succeeded")).attempts == 2


async def test_a_failed_check_of_other_processes_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_process(tmp_path, hang) as dead:
        job = await dead.start()
        await until(lambda: bool(dead.asked))
    async with open_process(tmp_path) as successor:
        answers, lives = [OSError(errno.EMFILE, "Too many open files")], successor.owner.is_alive

        def lives_or_fails(owner_id: str) -> bool:
            if answers:
                raise answers.pop()
            return lives(owner_id)

        monkeypatch.setattr(successor.owner, "is_alive", lives_or_fails)
        loaded = asyncio.Event()
        loaded.set()
        async with run_in_background(maintain_jobs(successor.jobs, successor.admission, loaded)):
            await successor.until(job.id, "succeeded")
    assert not answers


@pytest.mark.parametrize("facts", [{}, {"request_id": "r", "deadline_at": 1060.0, "flow": ["someone", 7, "new"]}])
async def test_a_job_with_an_unreadable_record_fails(tmp_path: Path, facts: object) -> None:
    def change(ledger: Transaction) -> None:
        ledger.execute("UPDATE jobs SET facts = ?", (json.dumps(facts),))

    async with open_process(tmp_path, hang) as dying:
        job = await dying.start()
        await dying.ledger.write(change)
    async with open_process(tmp_path) as successor:
        await successor.jobs.take()
        failed = await successor.until(job.id, "failed")
        assert failed.problem is not None
        assert failed.problem["code"] == "internal"
        await until(lambda: not successor.admission.in_flight)
