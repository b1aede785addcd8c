"""Orders of jobs on disk. An order that a killed process stored, and that never became a job, is removed."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from service.core.errors import NotReady, ServiceError
from service.core.order import Order
from service.core.schemas import InpaintOptions
from service.jobs.assembly import maintain_jobs
from service.jobs.request_files import LocalOrderFiles
from service.ledger.sqlite_file import LEDGER_FILE
from service.lifecycle.background import run_in_background
from tests.fakes.captured_logs import capture_logs
from tests.fakes.descriptors import no_descriptors_left
from tests.service.jobs.processes import ORDER, hang, open_process
from tests.serving.waiting import until

JOB = "1" * 32


def move_ledger(source: Path, target: Path) -> None:
    for file in source.glob(f"{LEDGER_FILE}*"):
        file.rename(target / file.name)


def test_a_request_that_cannot_be_read_now_is_not_lost(tmp_path: Path) -> None:
    """An accepted job waits for its order until its deadline, as the files exist."""
    kept = LocalOrderFiles(tmp_path)
    kept.keep(JOB, ORDER)
    with no_descriptors_left(), pytest.raises(NotReady, match="Too many open files") as refused:
        kept.find(JOB)
    assert refused.value.code == "storage_unavailable"
    assert kept.find(JOB) == ORDER


@pytest.mark.parametrize(("texture", "stored"), [("none", False), ("copied", True)])
def test_an_order_without_new_options_can_be_read_by_an_earlier_version(
    tmp_path: Path, texture: str, stored: bool
) -> None:
    """Earlier versions refuse unknown fields, and during an upgrade hosts of two versions share a queue."""
    order = Order("inpaint", ORDER.files, InpaintOptions.model_validate({"texture": texture}))
    LocalOrderFiles(tmp_path).keep(JOB, order)
    assert ("texture" in (tmp_path / ".jobs" / JOB / "order.json").read_text()) == stored
    assert LocalOrderFiles(tmp_path).find(JOB) == order


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", None])
def test_a_damaged_or_missing_order_is_lost(tmp_path: Path, content: bytes | None) -> None:
    kept = LocalOrderFiles(tmp_path)
    kept.keep(JOB, ORDER)
    path = tmp_path / ".jobs" / JOB / "order.json"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(ServiceError, match="send the request again") as lost:
        kept.find(JOB)
    assert lost.value.code == "order_lost"


async def test_only_orders_left_by_killed_processes_are_removed(tmp_path: Path) -> None:
    async with open_process(tmp_path, hang) as other, open_process(tmp_path) as process:
        await process.jobs.drop_orphans()
        process.clock.now += 7200
        unfinished, ended = await other.start(), await process.start()
        await process.until(ended.id, "succeeded")
        await until(lambda: not (tmp_path / ".jobs" / ended.id).exists())
        kept, (never_entered, fresh) = LocalOrderFiles(tmp_path), (uuid4().hex for _ in range(2))
        for job_id in (never_entered, ended.id, fresh):
            kept.keep(job_id, ORDER)
        for job_id in (never_entered, ended.id, unfinished.id):
            os.utime(tmp_path / ".jobs" / job_id, (process.clock() - 3600,) * 2)
        (tmp_path / ".jobs" / "notes").touch()
        os.utime(tmp_path / ".jobs" / fresh, (process.clock() - 5,) * 2)
        os.utime(tmp_path / ".jobs" / "notes", (0, 0))
        await process.jobs.drop_orphans()
        assert {path.name for path in (tmp_path / ".jobs").iterdir()} == {unfinished.id, fresh, "notes"}


async def test_a_job_of_a_ledger_that_was_moved_for_a_while_is_not_lost(tmp_path: Path) -> None:
    """A server that starts without its ledger creates an empty one, in which no job exists."""
    folder, away = tmp_path / "results", tmp_path / "away"
    folder.mkdir()
    away.mkdir()
    async with open_process(folder, hang) as died:
        job = await died.start(allowed_s=7200.0)
    os.utime(folder / ".jobs" / job.id, (died.clock(),) * 2)
    move_ledger(folder, away)
    with capture_logs() as lines:
        async with open_process(folder) as without:
            for _ in range(2):
                without.clock.now += 3000
                await without.jobs.drop_orphans()
    assert [line["requests"] for line in lines if "kept for a day" in line["event"]] == [1]
    for left in folder.glob(f"{LEDGER_FILE}*"):
        left.unlink()
    move_ledger(away, folder)
    async with open_process(folder) as process:
        await process.jobs.take()
        await process.until(job.id, "succeeded")


async def test_no_job_is_lost_if_its_ledger_is_moved_away_while_orphans_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, away = tmp_path / "results", tmp_path / "away"
    folder.mkdir()
    away.mkdir()
    list_older = LocalOrderFiles.older_than

    def move_then_list(kept: LocalOrderFiles, moment: float) -> list[str]:
        if (folder / LEDGER_FILE).exists() and not list(away.iterdir()):
            move_ledger(folder, away)
        return list_older(kept, moment)

    async with open_process(folder, hang) as process:
        await process.jobs.drop_orphans()  # records the time from which on the ledger has all jobs
        process.clock.now += 10
        job = await process.start(allowed_s=7200.0)
        os.utime(folder / ".jobs" / job.id, (process.clock(),) * 2)
        process.clock.now += 3000
        monkeypatch.setattr(LocalOrderFiles, "older_than", move_then_list)
        with suppress(NotReady):  # raised while the ledger is missing
            await process.jobs.drop_orphans()
        assert list(away.iterdir())
        assert (folder / ".jobs" / job.id / "order.json").exists()


async def test_an_old_order_of_a_known_job_belongs_to_this_ledger(tmp_path: Path) -> None:
    async with open_process(tmp_path) as process:
        ended = await process.start()
        await process.until(ended.id, "succeeded")
        await until(lambda: not (tmp_path / ".jobs" / ended.id).exists())
        LocalOrderFiles(tmp_path).keep(ended.id, ORDER)
        os.utime(tmp_path / ".jobs" / ended.id, (process.clock() - 1,) * 2)
        process.clock.now += 3000
        with capture_logs() as lines:
            await process.jobs.drop_orphans()
        assert not (tmp_path / ".jobs" / ended.id).exists()
    assert [line for line in lines if "kept" in line["event"]] == []


async def test_the_order_of_an_unknown_job_is_kept_as_long_as_the_job_could_run(tmp_path: Path) -> None:
    async with open_process(tmp_path) as process:
        job_id = uuid4().hex
        LocalOrderFiles(tmp_path).keep(job_id, ORDER)
        os.utime(tmp_path / ".jobs" / job_id, (process.clock(),) * 2)
        process.clock.now += 86_400
        await process.jobs.drop_orphans()
        assert (tmp_path / ".jobs" / job_id).exists()
        process.clock.now += 7200
        await process.jobs.drop_orphans()
        assert not (tmp_path / ".jobs" / job_id).exists()


async def test_maintenance_removes_orphaned_orders(tmp_path: Path) -> None:
    async with open_process(tmp_path) as process:
        job_id, loaded = uuid4().hex, asyncio.Event()
        LocalOrderFiles(tmp_path).keep(job_id, ORDER)
        os.utime(tmp_path / ".jobs" / job_id, (0, 0))
        process.clock.now = 1e6
        loaded.set()
        async with run_in_background(maintain_jobs(process.jobs, process.admission, loaded)):
            await until(lambda: not (tmp_path / ".jobs" / job_id).exists())


async def test_an_order_that_overwrites_an_orphan_is_not_an_orphan(tmp_path: Path) -> None:
    kept, job_id = LocalOrderFiles(tmp_path), uuid4().hex
    kept.keep(job_id, ORDER)
    os.utime(tmp_path / ".jobs" / job_id, (0, 0))
    assert kept.older_than(1000) == [job_id]
    kept.keep(job_id, ORDER)
    assert kept.older_than(1000) == []


async def test_without_stored_orders_there_are_no_orphans(tmp_path: Path) -> None:
    async with open_process(tmp_path) as process:
        await process.jobs.drop_orphans()
    assert not (tmp_path / ".jobs").exists()
