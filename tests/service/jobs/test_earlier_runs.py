"""Results of a job's earlier runs: used if all exist, else removed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from service.core.call import Call
from service.core.errors import DeadlineExceeded, InvalidImage, NotReady, ServiceError
from service.core.flow import Flow
from service.core.order import Order
from service.jobs import jobs_table
from service.jobs.earlier_runs import EarlierRuns, result_id
from service.jobs.jobs_table import Job
from service.jobs.request_files import LocalOrderFiles
from service.ledger.contract import Transaction
from service.saving.storage.contract import is_result_id
from tests.service.jobs.processes import hang, open_process
from tests.serving.waiting import until


class Results:
    """The stored results, and the id and owner of each deleted one."""

    def __init__(self) -> None:
        self.stored: set[str] = set()
        self.buried: list[tuple[str, str]] = []

    def find(self, one: str) -> object | None:
        return {} if one in self.stored else None

    def bury(self, one: str, owner: str) -> None:
        self.buried.append((one, owner))

    def bury_in(self, _ledger: Transaction, one: str, owner: str) -> None:
        self.bury(one, owner)


def job_of(attempts: int, pictures: int = 1) -> Job:
    return Job(uuid4().hex, "queued", "me", 0.0, {"flow": ["key:0123", 5], "pictures": pictures}, attempts)


def test_the_ids_of_all_runs_and_pictures_differ_and_are_ids_of_results() -> None:
    ids = [result_id(job, run, picture) for job in ("a", "b") for run in (1, 2, 11) for picture in (0, 1, 11)]
    assert len(set(ids)) == len(ids)
    assert all(map(is_result_id, ids))


async def test_of_two_complete_runs_the_later_one_is_used() -> None:
    results, job = Results(), job_of(3, pictures=2)
    results.stored = {result_id(job.id, run, picture) for run in (1, 2) for picture in (0, 1)}
    urls = await EarlierRuns(results.find, results.bury, results.bury_in).results(job)
    assert urls == [f"/v1/results/{result_id(job.id, 2, picture)}" for picture in (0, 1)]
    assert results.buried == []


async def test_results_of_incomplete_runs_are_deleted_for_their_owner() -> None:
    results, job = Results(), job_of(3, pictures=2)
    results.stored = {result_id(job.id, 1, 0)}
    assert await EarlierRuns(results.find, results.bury, results.bury_in).results(job) == []
    assert results.buried == [(result_id(job.id, run, picture), "0123") for run in (1, 2) for picture in (0, 1)]


async def test_results_shared_with_other_requests_are_not_deleted() -> None:
    results, job = Results(), replace(job_of(3, pictures=2), shared_runs=frozenset({1}))
    assert await EarlierRuns(results.find, results.bury, results.bury_in).results(job) == []
    assert [one for one, _ in results.buried] == [result_id(job.id, 2, picture) for picture in (0, 1)]


async def test_nothing_is_looked_for_before_the_first_run() -> None:
    results = Results()
    assert await EarlierRuns(results.find, results.bury, results.bury_in).results(job_of(1)) == []
    assert results.buried == []


async def test_an_unavailable_storage_stops_no_job_and_deletes_nothing() -> None:
    def away(one: str) -> object | None:
        raise NotReady(f"{one} cannot be read now", code="storage_unavailable")

    results = Results()
    assert await EarlierRuns(away, results.bury, results.bury_in).results(job_of(2)) == []
    assert results.buried == []


async def test_complete_results_are_used_even_if_a_later_run_cannot_be_checked() -> None:
    results, job = Results(), job_of(4)
    results.stored = {result_id(job.id, 1, 0)}

    def find(one: str) -> object | None:
        if one == result_id(job.id, 3, 0):
            raise NotReady(f"{one} cannot be read now", code="storage_unavailable")
        return results.find(one)

    assert await EarlierRuns(find, results.bury, results.bury_in).results(job) == [
        f"/v1/results/{result_id(job.id, 1, 0)}"
    ]
    assert [one for one, _ in results.buried] == [result_id(job.id, 3, 0)]


async def test_a_job_fails_if_its_results_are_not_stored_by_the_deadline(
    tmp_path: Path,
) -> None:
    results, asked = Results(), list[Sequence[str]]()

    def any_unstored(ids: Sequence[str]) -> bool:
        asked.append(ids)
        if len(asked) == 1:
            raise NotReady("the spool cannot be read now", code="storage_unavailable")
        return True

    async with open_process(tmp_path, hang) as dying:
        job = await dying.start(allowed_s=60.0)
        await until(lambda: bool(dying.asked))
    results.stored = {result_id(job.id, 1, 0)}
    async with open_process(tmp_path) as successor:
        earlier = EarlierRuns(results.find, results.bury, results.bury_in, any_unstored, successor.clock)
        late = replace(job, attempts=2)
        waiting = asyncio.ensure_future(earlier.results(late))
        await until(lambda: len(asked) > 1)
        successor.clock.now += 61.0
        with pytest.raises(NotReady, match="did not accept it in time"):
            await waiting
    assert results.buried == []


@pytest.mark.parametrize("complete", [True, False])
async def test_a_job_is_computed_again_only_if_its_result_is_not_stored(tmp_path: Path, complete: bool) -> None:
    results = Results()
    earlier = EarlierRuns(results.find, results.bury, results.bury_in)

    async def store_and_hang(_order: Order, call: Call) -> list[str]:
        assert call.result_id is not None
        results.stored.add(call.result_id(0))
        return await hang(_order, call)

    async with open_process(tmp_path, store_and_hang) as dying:
        job = await dying.start()
        await until(lambda: bool(results.stored))
    stored = results.stored.pop() if not complete else next(iter(results.stored))
    async with open_process(tmp_path, earlier=earlier) as successor:
        await successor.jobs.take()
        ended = await successor.until(job.id, "succeeded")
        assert (ended.result_urls == [f"/v1/results/{stored}"]) is complete
        assert len(successor.asked) == (not complete)
        await until(lambda: not successor.admission.in_flight)
    assert results.buried == ([] if complete else [(stored, Flow("someone", 7).owner)])


async def test_a_job_that_is_cancelled_when_its_result_is_stored_leaves_none(tmp_path: Path) -> None:
    results, ids = Results(), list[str]()

    async def store_and_hang(_order: Order, call: Call) -> list[str]:
        assert call.result_id is not None
        ids.append(call.result_id(0))
        return await hang(_order, call)

    earlier = EarlierRuns(results.find, results.bury, results.bury_in)
    async with open_process(tmp_path, store_and_hang, earlier=earlier) as running:
        job = await running.start()
        await until(lambda: bool(ids))
        assert (await running.jobs.cancel(job.id)).status == "cancelled"
    assert results.buried == [(ids[0], Flow("someone", 7).owner)]


class EndOfProcess(LocalOrderFiles):
    """Orders of a process that is killed right after the end of its job was recorded."""

    def drop(self, job_id: str) -> None:
        raise SystemError(f"killed before the order of {job_id} was removed")


async def test_a_process_that_is_killed_just_after_a_job_was_cancelled_leaves_no_result(tmp_path: Path) -> None:
    results = Results()
    orders, earlier = EndOfProcess(tmp_path), EarlierRuns(results.find, results.bury, results.bury_in)
    async with open_process(tmp_path, hang, orders=orders, earlier=earlier) as running:
        job = await running.start()
        with pytest.raises(SystemError, match="killed"):
            await running.jobs.cancel(job.id)
        assert (await running.jobs.get(job.id)).status == "cancelled"
    assert [one for one, _ in results.buried] == [result_id(job.id, 1, 0)]


async def test_results_shared_with_other_requests_stay_if_the_job_is_cancelled(tmp_path: Path) -> None:
    results, entered = Results(), asyncio.Event()

    async def share_and_hang(_order: Order, call: Call) -> list[str]:
        assert call.may_share is not None
        assert await running.ledger.write(call.may_share)
        entered.set()
        return await hang(_order, call)

    earlier = EarlierRuns(results.find, results.bury, results.bury_in)
    async with open_process(tmp_path, share_and_hang, earlier=earlier) as running:
        job = await running.start()
        await entered.wait()
        assert (await running.jobs.cancel(job.id)).status == "cancelled"
    assert results.buried == [], "whether or not the cache still has its entry"


@pytest.mark.parametrize(
    ("error", "left"),
    [
        (NotReady("the storage did not accept it in time", code="storage_unavailable"), False),
        (DeadlineExceeded("too late"), False),
        (InvalidImage("not an image"), True),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_job_that_fails_after_its_result_was_stored_leaves_none(
    tmp_path: Path, error: ServiceError, left: bool
) -> None:
    results = Results()

    async def fail(_order: Order, _call: Call) -> list[str]:
        raise error

    earlier = EarlierRuns(results.find, results.bury, results.bury_in)
    async with open_process(tmp_path, fail, earlier=earlier) as running:
        job = await running.start()
        await running.until(job.id, "failed")
        await until(lambda: not running.jobs.running)
    assert [one for one, _ in results.buried] == ([] if left else [result_id(job.id, 1, 0)])


async def test_a_process_that_has_lost_its_job_and_fails_late_deletes_nothing(tmp_path: Path) -> None:
    results, failing = Results(), asyncio.Event()

    async def fail_late(_order: Order, _call: Call) -> list[str]:
        await failing.wait()
        raise DeadlineExceeded("too late")

    earlier = EarlierRuns(results.find, results.bury, results.bury_in)
    async with open_process(tmp_path, fail_late, earlier=earlier) as lost:
        job = await lost.start()
        results.stored = {result_id(job.id, 1, 0)}
        (taken,) = await lost.ledger.write(partial(jobs_table.inherit, dead_owner=lost.owner.id, new_owner="successor"))
        urls = await earlier.results(taken)
        named = replace(taken, status="succeeded", finished_at=lost.clock(), result_urls=urls)
        assert await lost.ledger.write(partial(jobs_table.finish, job=named))
        failing.set()
        await until(lambda: not lost.jobs.running)
        assert (await lost.jobs.get(job.id)).result_urls == [f"/v1/results/{result_id(job.id, 1, 0)}"]
    assert results.buried == []


@pytest.mark.parametrize("complete", [True, False])
async def test_a_job_that_is_given_up_leaves_no_result_behind(tmp_path: Path, complete: bool) -> None:
    results = Results()
    earlier, ids = EarlierRuns(results.find, results.bury, results.bury_in), list[str]()

    async def note_and_hang(_order: Order, call: Call) -> list[str]:
        assert call.result_id is not None
        ids.append(call.result_id(0))
        return await hang(_order, call)

    async with open_process(tmp_path, note_and_hang) as dying:
        job = await dying.start()
        await until(lambda: bool(dying.asked))
    for _ in range(2):
        async with open_process(tmp_path, note_and_hang, earlier=earlier) as dying:
            await dying.jobs.take()
            await until(lambda: bool(dying.asked))
    results.buried.clear()
    results.stored = {ids[-1]} if complete else set()
    async with open_process(tmp_path, earlier=earlier) as last:
        await last.jobs.take()
        ended = await last.until(job.id, "succeeded", "failed")
        assert last.asked == []
    assert len(ids) == 3
    assert ended.result_urls == ([f"/v1/results/{ids[-1]}"] if complete else [])
    assert [one for one, _ in results.buried] == ([] if complete else ids)
