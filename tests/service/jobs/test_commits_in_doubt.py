"""The database fails between a job's commit and its confirmation: the job runs, and a repeated request finds it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from service.core.errors import NotReady
from service.jobs import jobs_table
from service.saving.local_disk.disk import Disk
from tests.fakes.lost_answers import LosesAnswers
from tests.service.jobs.processes import ORDER, JobsProcess, open_process
from tests.serving.waiting import until


async def refused_after_the_commit(process: JobsProcess, root: Path, key: str) -> None:
    process.ledger.connections = ledger = LosesAnswers(root)
    ledger.open()
    ledger.lose = 1
    with pytest.raises(NotReady):
        await process.start(repeat_key=key)


async def test_a_repeat_finds_the_job_of_a_request_that_was_refused_after_its_commit(tmp_path: Path) -> None:
    async with open_process(tmp_path) as process, open_process(tmp_path) as other:
        await refused_after_the_commit(process, tmp_path, "key")
        found = await other.start(repeat_key="key")
        assert await process.start(repeat_key="key") == found
        await process.jobs.take()
        assert process.asked == [], "its commit may be a moment ago"
        process.clock.now += 11.0
        await process.jobs.take()
        await process.until(found.id, "succeeded")
        assert [order for order, _ in process.asked + other.asked] == [ORDER]
        await until(lambda: not list((tmp_path / ".jobs").iterdir()))
        assert (await process.start(repeat_key="another")).id != found.id


async def test_a_job_inserted_by_a_cancelled_request_keeps_its_order(tmp_path: Path) -> None:
    committed, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        committed.set()
        assert go_on.wait(20)

    async with open_process(tmp_path) as successor:
        async with open_process(tmp_path) as dying:
            dying.ledger.connections = ledger = LosesAnswers(tmp_path, hold)
            ledger.open()
            starting = asyncio.create_task(dying.start(repeat_key="key"))
            assert await asyncio.to_thread(committed.wait, 20)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            go_on.set()
        found = await successor.start(repeat_key="key")
        await successor.jobs.take()
        await successor.until(found.id, "succeeded")
        assert [order for order, _ in successor.asked] == [ORDER]


async def test_a_process_does_not_run_a_long_job_twice(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def slow(*_: object) -> list[str]:
        await gate.wait()
        return []

    async with open_process(tmp_path, slow) as process:
        job = await process.start()
        process.clock.now += 11.0
        await process.jobs.take()
        gate.set()
        await process.until(job.id, "succeeded")
        await process.jobs.take()
        assert len(process.asked) == 1


async def test_a_job_that_ends_while_its_process_looks_for_lost_ones_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_process(tmp_path) as process:
        job = await process.start()
        await process.until(job.id, "succeeded")
        await until(lambda: not process.jobs.running)  # its task ends a little later
        monkeypatch.setattr(jobs_table, "inserted_before", lambda *_, **__: {job.id})  # as read before it ended
        await process.jobs.take()
        assert not process.jobs.running


async def test_a_job_that_is_being_inserted_is_not_claimed(tmp_path: Path) -> None:
    committed, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        process.clock.now += 11.0
        committed.set()
        assert go_on.wait(20)

    async with open_process(tmp_path) as process:
        process.ledger.connections = ledger = LosesAnswers(tmp_path, hold)
        ledger.open()
        starting = asyncio.create_task(process.start())
        assert await asyncio.to_thread(committed.wait, 20)
        await process.jobs.take()
        go_on.set()
        job = await starting
        await process.until(job.id, "succeeded")
        assert [call.request_id for _, call in process.asked] == ["request1"]


async def test_the_time_to_store_an_order_does_not_age_its_job(tmp_path: Path) -> None:
    class SlowDisk(Disk):
        def write(self, path: Path, data: bytes) -> None:
            process.clock.now += 11.0
            super().write(path, data)

    async with open_process(tmp_path, disk=SlowDisk()) as process:
        job = await process.start()
        assert job.created_at == process.clock.now
