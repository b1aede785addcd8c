"""Asynchronous requests: every one ends in a state that can be polled, whichever process runs it."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from service.admission.admission import Admission, AdmissionRequest
from service.core.errors import InvalidImage, NotFound, NotReady, Overloaded, ShuttingDown
from service.core.flow import Flow
from service.core.items import Call
from service.core.order import Order
from service.core.schemas import InpaintOptions
from service.jobs import table
from service.jobs.assembly import _look_after
from service.jobs.jobs import JobLimits, JobParts, Jobs
from service.jobs.request_files import KeptOrders
from service.jobs.table import Job
from service.ledger.database import LEDGER_FILE, Database
from service.lifecycle.background import running
from service.saving.disk_io import Disk
from service.saving.disk_state import DiskState
from service.saving.spool.process_folder import Owner
from tests.fakes.clock import Clock
from tests.fakes.disk import SYNCS, FailingDisk
from tests.serving.waiting import until

Fulfil = Callable[[Order, Call], Awaitable[list[str]]]
ORDER = Order("inpaint", {"image": b"image", "mask": b"mask"}, InpaintOptions.model_validate({"quality": "80"}))
URLS = ["/v1/results/first", "/v1/results/second"]


@dataclass
class Desk:
    """One process: its jobs, what it was asked to fulfil, and its place in the house."""

    jobs: Jobs
    owner: Owner
    admission: Admission
    clock: Clock
    disk: DiskState
    asked: list[tuple[Order, Call]] = field(default_factory=list)

    async def start(self, allowed_s: float = 60.0, job_id: str | None = None) -> Job:
        flow = Flow("someone", 7)
        with ExitStack() as house:
            place = house.enter_context(self.admission.admit(AdmissionRequest(allowed_s, flow=flow)))
            self.admission.count_in_flight(place)
            on_large = partial(self.admission.mark_large, place)
            call = Call("request1", self.clock(), self.clock() + allowed_s, flow, on_large=on_large)
            return await self.jobs.start(ORDER, call, {}, house, job_id)

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
async def process(
    root: Path, fulfil: Fulfil = succeed, max_jobs: int = 10, disk: Disk | None = None
) -> AsyncIterator[Desk]:
    """What shares `root` with the other processes; leaving it is its death: nothing is tidied up."""
    owner, clock, admission, state = Owner(root, lambda: uuid4().hex), Clock(), Admission(8), DiskState(root)
    owner.create()
    with Database(root / LEDGER_FILE, [table.SCHEMA]) as ledger:

        async def remembering(order: Order, call: Call) -> list[str]:
            desk.asked.append((order, call))
            return await fulfil(order, call)

        parts = JobParts(
            ledger=ledger,
            kept=KeptOrders(root, disk),
            disk=state,
            owner=owner,
            admission=admission,
            fulfil=remembering,
            clock=clock,
            now=clock,
            new_id=lambda: uuid4().hex,
        )
        desk = Desk(Jobs(parts, JobLimits(max_jobs, 60.0)), owner, admission, clock, state)
        try:
            yield desk
        finally:
            await desk.jobs.close()
            owner.leave()


async def test_a_job_goes_from_queued_to_succeeded_and_tells_where_its_results_are(tmp_path: Path) -> None:
    async with process(tmp_path) as desk:
        job = await desk.start()
        assert job.status == "queued"
        reply = (await desk.until(job.id, "succeeded")).reply()
        assert (reply.result_url, reply.result_urls) == (URLS[0], URLS)
        assert reply.created.startswith("1970-01-01T00:16:40")
        await until(lambda: not list((tmp_path / ".jobs").iterdir()))  # its request is not kept longer than it


async def test_what_a_killed_process_left_of_a_request_is_removed_and_no_other(tmp_path: Path) -> None:
    async with process(tmp_path, hang) as other, process(tmp_path) as desk:
        unfinished, ended = await other.start(), await desk.start()
        await desk.until(ended.id, "succeeded")
        await until(lambda: not (tmp_path / ".jobs" / ended.id).exists())
        kept, (never_entered, fresh) = KeptOrders(tmp_path), (uuid4().hex for _ in range(2))
        for job_id in (never_entered, ended.id, fresh):
            kept.keep(job_id, ORDER)
        for job_id in (never_entered, ended.id, unfinished.id):
            os.utime(tmp_path / ".jobs" / job_id, (desk.clock() - 3600,) * 2)
        (tmp_path / ".jobs" / "notes").touch()
        os.utime(tmp_path / ".jobs" / fresh, (desk.clock() - 5,) * 2)
        os.utime(tmp_path / ".jobs" / "notes", (0, 0))
        await desk.jobs.drop_orphans()
        assert {path.name for path in (tmp_path / ".jobs").iterdir()} == {unfinished.id, fresh, "notes"}


async def test_the_look_at_all_jobs_removes_orphans(tmp_path: Path) -> None:
    async with process(tmp_path) as desk:
        job_id, loaded = uuid4().hex, asyncio.Event()
        KeptOrders(tmp_path).keep(job_id, ORDER)
        os.utime(tmp_path / ".jobs" / job_id, (0, 0))
        loaded.set()
        async with running(_look_after(desk.jobs, desk.admission, loaded)):
            await until(lambda: not (tmp_path / ".jobs" / job_id).exists())


async def test_a_request_that_comes_again_over_an_orphan_is_no_orphan(tmp_path: Path) -> None:
    kept, job_id = KeptOrders(tmp_path), uuid4().hex
    kept.keep(job_id, ORDER)
    os.utime(tmp_path / ".jobs" / job_id, (0, 0))
    assert kept.older_than(1000) == [job_id]
    kept.keep(job_id, ORDER)
    assert kept.older_than(1000) == []


async def test_where_no_job_was_ever_kept_nothing_is_an_orphan(tmp_path: Path) -> None:
    async with process(tmp_path) as desk:
        await desk.jobs.drop_orphans()
    assert not (tmp_path / ".jobs").exists()


async def test_a_job_runs_when_its_first_sample_is_taken_into_a_batch(tmp_path: Path) -> None:
    async with process(tmp_path, hang) as desk:
        job = await desk.start()
        await until(lambda: bool(desk.asked))
        assert (await desk.jobs.get(job.id)).status == "queued"
        begun = desk.asked[0][1].on_begun
        assert begun is not None
        begun()
        await desk.until(job.id, "running")
        await desk.jobs.cancel(job.id)
        begun()
        assert (await desk.jobs.get(job.id)).status == "cancelled"


async def test_a_job_of_large_pictures_leaves_its_place_to_others(tmp_path: Path) -> None:
    async with process(tmp_path, hang) as desk:
        job = await desk.start()
        await until(lambda: bool(desk.asked))
        assert (desk.admission.in_flight, desk.admission.large_in_flight) == (1, 0)
        on_large = desk.asked[0][1].on_large
        assert on_large is not None
        on_large()
        assert (desk.admission.in_flight, desk.admission.large_in_flight) == (1, 1)
        await desk.jobs.cancel(job.id)
        await until(lambda: not desk.admission.in_flight)
        assert desk.admission.large_in_flight == 0


async def test_a_job_that_fails_keeps_its_problem(tmp_path: Path) -> None:
    async def fail(_order: Order, _call: Call) -> list[str]:
        raise InvalidImage("not an image")

    async with process(tmp_path, fail) as desk:
        job = await desk.until((await desk.start()).id, "failed")
        assert job.problem is not None
        assert (job.problem["status"], job.problem["code"]) == (400, "invalid_image")
        assert (job.problem["request_id"], job.problem["instance"]) == ("request1", f"/v1/jobs/{job.id}")


async def test_a_job_that_breaks_for_a_reason_of_ours_fails_too(tmp_path: Path) -> None:
    async def crash(_order: Order, _call: Call) -> list[str]:
        raise RuntimeError("a bug")

    async with process(tmp_path, crash) as desk:
        job = await desk.until((await desk.start()).id, "failed")
        assert job.problem is not None
        assert job.problem["status"] == 500


async def test_a_job_whose_deadline_passes_fails(tmp_path: Path) -> None:
    async with process(tmp_path, hang) as desk:
        job = await desk.until((await desk.start(allowed_s=0.01)).id, "failed")
        assert job.problem is not None
        assert job.problem["code"] == "deadline_exceeded"


async def test_a_cancelled_job_stops_and_stays_cancelled_and_a_finished_one_stays_as_it_is(tmp_path: Path) -> None:
    async with process(tmp_path, hang) as desk:
        job = await desk.start()
        assert (await desk.jobs.cancel(job.id)).status == "cancelled"
        await until(lambda: not desk.jobs._running)
        assert (await desk.jobs.get(job.id)).status == "cancelled"
    async with process(tmp_path) as desk:
        job = await desk.start()
        await desk.until(job.id, "succeeded")
        assert (await desk.jobs.cancel(job.id)).status == "succeeded"


async def test_a_finished_job_is_forgotten_after_its_time_and_an_unfinished_one_is_not(tmp_path: Path) -> None:
    async with process(tmp_path) as desk, process(tmp_path, hang) as other:
        done, hanging = await desk.start(), await other.start()
        await desk.until(done.id, "succeeded")
        desk.clock.now += 61.0
        for _ in range(2):
            with pytest.raises(NotFound, match="60 s"):
                await desk.jobs.get(done.id)
            assert (await desk.jobs.get(hanging.id)).finished_at is None
            await desk.jobs.forget()


async def test_no_more_jobs_are_unfinished_than_allowed_over_all_processes(tmp_path: Path) -> None:
    async with process(tmp_path, hang) as other, process(tmp_path, max_jobs=1) as desk:
        job = await other.start()
        with pytest.raises(Overloaded, match="1 jobs are unfinished") as refusal:
            await desk.start()
        assert refusal.value.retry_after_s is not None
        assert len(list((tmp_path / ".jobs").iterdir())) == 1, "nothing of the refused one is kept"
        await other.jobs.cancel(job.id)
        await desk.until((await desk.start()).id, "succeeded")


async def test_a_request_that_the_disk_does_not_take_is_no_job(tmp_path: Path) -> None:
    (tmp_path / ".jobs").write_bytes(b"")
    async with process(tmp_path) as desk:
        with pytest.raises(NotReady) as refusal:
            await desk.start()
        assert refusal.value.code == "storage_unavailable"
        assert desk.asked == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
async def test_while_the_disk_takes_nothing_no_job_is_accepted_and_nothing_is_left_of_it(
    tmp_path: Path, code: int
) -> None:
    disk = FailingDisk()
    async with process(tmp_path, disk=disk) as desk:
        disk.fail(code, SYNCS)
        for _ in range(2):
            with pytest.raises(NotReady) as refusal:
                await desk.start()
            assert refusal.value.code == "storage_unavailable"
        assert disk.asked.count("write") == 1, "the second is refused before anything is written"
        assert list((tmp_path / ".jobs").iterdir()) == []
        disk.mend()
        assert desk.disk.look()
        await desk.until((await desk.start()).id, "succeeded")


async def test_every_process_tells_and_cancels_the_jobs_of_all(tmp_path: Path) -> None:
    async with process(tmp_path, hang) as one, process(tmp_path) as other:
        job = await one.start()
        assert (await other.jobs.get(job.id)).status == "queued"
        await other.jobs.inherit()
        assert other.asked == [], "it lives"
        assert (await other.jobs.cancel(job.id)).status == "cancelled"
        assert one.jobs._running
        await one.jobs.stop_cancelled()
        await until(lambda: not one.jobs._running)


async def test_the_job_of_a_dead_process_is_run_again_by_another_with_what_it_was_sent(tmp_path: Path) -> None:
    async with process(tmp_path) as heir:
        async with process(tmp_path, hang) as dying:
            job = await dying.start()
            await until(lambda: bool(dying.asked))
        assert (await heir.jobs.get(job.id)).finished_at is None
        await heir.jobs.inherit()
        await heir.until(job.id, "succeeded")
        order, call = heir.asked[0]
        assert order == ORDER
        assert (call.request_id, call.flow, call.deadline) == ("request1", Flow("someone", 7), 1060.0)
        await until(lambda: not heir.admission.in_flight)


async def test_a_job_that_is_started_again_under_its_id_is_the_one_that_was_there(tmp_path: Path) -> None:
    job_id = uuid4().hex
    async with process(tmp_path, hang) as dying:
        first = await dying.start(job_id=job_id)
    async with process(tmp_path) as desk:
        assert await desk.start(job_id=job_id) == first
        assert desk.asked == []  # it is taken up as any job of a dead process
        await desk.jobs.inherit()
        finished = await desk.until(job_id, "succeeded")
        assert await desk.start(job_id=job_id) == finished
        assert [order for order, _ in desk.asked] == [ORDER]
        await until(lambda: not list((tmp_path / ".jobs").iterdir()))


async def test_of_two_processes_that_start_the_same_job_at_once_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nobody(_jobs: Jobs, _job_id: str) -> None:
        """Neither sees the other's."""

    monkeypatch.setattr(Jobs, "known", nobody)
    job_id = uuid4().hex
    async with process(tmp_path, hang) as one, process(tmp_path, hang) as other:
        jobs = await asyncio.gather(one.start(job_id=job_id), other.start(job_id=job_id))
        assert jobs[0] == jobs[1]
        assert len(one.jobs._running) + len(other.jobs._running) == 1
        assert (tmp_path / ".jobs" / job_id / "order.json").exists()
        await one.jobs.cancel(job_id)
        assert (await other.start(job_id=job_id)).status == "cancelled"
        assert not list((tmp_path / ".jobs").iterdir())


async def test_what_a_process_left_that_died_keeping_a_request_is_written_over(tmp_path: Path) -> None:
    job_id = uuid4().hex
    (tmp_path / ".jobs" / job_id).mkdir(parents=True)
    (tmp_path / ".jobs" / job_id / "image").write_bytes(b"im")
    async with process(tmp_path, hang) as dying:
        await dying.start(job_id=job_id)
    async with process(tmp_path) as heir:
        await heir.jobs.inherit()
        await heir.until(job_id, "succeeded")
        assert [order for order, _ in heir.asked] == [ORDER]


async def test_a_job_that_takes_processes_down_with_it_is_given_up_and_says_so(tmp_path: Path) -> None:
    async with process(tmp_path, hang) as dying:
        job = await dying.start()
    for _ in range(2):
        async with process(tmp_path, hang) as dying:
            await dying.jobs.inherit()
            await until(lambda: bool(dying.asked))
    async with process(tmp_path) as last:
        await last.jobs.inherit()
        given_up = await last.until(job.id, "failed")
        assert last.asked == []
        assert given_up.problem is not None
        assert given_up.problem["code"] == "job_crashed"


async def test_a_job_whose_request_was_deleted_fails_and_says_so(tmp_path: Path) -> None:
    async with process(tmp_path, hang) as dying:
        job = await dying.start()
    (tmp_path / ".jobs" / job.id / "order.json").unlink()
    async with process(tmp_path) as heir:
        await heir.jobs.inherit()
        lost = await heir.until(job.id, "failed")
        assert lost.problem is not None
        assert lost.problem["code"] == "order_lost"


async def test_a_job_that_a_draining_process_did_not_come_to_is_left_to_the_next(tmp_path: Path) -> None:
    async def refuse(_order: Order, _call: Call) -> list[str]:
        raise ShuttingDown("draining")

    async with process(tmp_path, refuse) as draining:
        job = await draining.start()
        await until(lambda: not draining.jobs._running)
        left = await draining.jobs.get(job.id)
        assert (left.status, left.attempts) == ("queued", 0)
    async with process(tmp_path) as draining:
        draining.admission.draining.set()
        await draining.jobs.inherit()
        await until(lambda: not draining.jobs._running)
        assert draining.asked == []
    async with process(tmp_path) as heir:
        await heir.jobs.inherit()
        await heir.until(job.id, "succeeded")


async def test_a_job_that_is_taken_up_waits_for_a_place_in_the_house(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with process(tmp_path, hang) as dying:
        job = await dying.start()
    slept: list[float] = []
    sleep = asyncio.sleep

    async def brief(seconds: float) -> None:
        if seconds >= 1:
            slept.append(seconds)
            heir.admission.max_requests = 8
            seconds = 0
        await sleep(seconds)

    async with process(tmp_path) as heir:
        heir.admission.max_requests = 0
        monkeypatch.setattr("service.jobs.jobs.asyncio.sleep", brief)
        await heir.jobs.inherit()
        await heir.until(job.id, "succeeded")
        assert slept


async def test_a_job_ends_even_if_the_ledger_could_not_be_written_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.ledger.database._WRITE_AGAIN_AFTER_S", 0.001)
    finish, failures = table.finish, [3]

    def failing(*arguments: Any) -> bool:
        if failures[0]:
            failures[0] -= 1
            raise table.sqlite3.OperationalError("database or disk is full")
        return finish(*arguments)

    monkeypatch.setattr(table, "finish", failing)
    async with process(tmp_path) as desk:
        await desk.until((await desk.start()).id, "succeeded")
    assert failures == [0]


async def test_a_look_at_other_processes_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with process(tmp_path, hang) as dead:
        job = await dead.start()
        await until(lambda: bool(dead.asked))
    async with process(tmp_path) as heir:
        answers, lives = [OSError(errno.EMFILE, "Too many open files")], heir.owner.lives

        def lives_or_fails(owner_id: str) -> bool:
            if answers:
                raise answers.pop()
            return lives(owner_id)

        monkeypatch.setattr(heir.owner, "lives", lives_or_fails)
        loaded = asyncio.Event()
        loaded.set()
        async with running(_look_after(heir.jobs, heir.admission, loaded)):
            await heir.until(job.id, "succeeded")
    assert not answers
