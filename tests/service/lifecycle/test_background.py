"""Background tasks: a failure is logged, and stops nothing else."""

from __future__ import annotations

import asyncio

from service.lifecycle.background import run_in_background, wait_for_any
from tests.fakes.captured_logs import capture_logs


async def fails() -> None:
    raise OSError("no descriptor left")


async def test_a_failed_background_task_is_logged_and_stops_no_other() -> None:
    ended = []

    async def lasts() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("lasts")

    with capture_logs() as lines:
        async with run_in_background(fails(), lasts()):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
    assert ended == ["lasts"]
    assert [line["work"] for line in lines] == ["fails"]


async def test_the_first_of_several_events_ends_the_wait_for_all() -> None:
    early, never = asyncio.Event(), asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, early.set)
    await asyncio.wait_for(wait_for_any(never, early), 10)
    assert len(asyncio.all_tasks()) == 1
