"""A single flight: all callers of the same work share one run of it, regardless of who began it."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from service.repeats.single_flight import SingleFlight


class Work:
    def __init__(self) -> None:
        self.begun = self.ended = self.stopped = 0
        self.gate = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self) -> str:
        self.begun += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.stopped += 1
            raise
        if self.error:
            raise self.error
        self.ended += 1
        return f"result {self.begun}"


async def joined(flights: SingleFlight[str], work: Work, key: str = "key") -> asyncio.Task[str]:
    task = asyncio.create_task(flights.run_or_join(key, partial(work)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return task


async def test_all_waiting_callers_get_the_single_result() -> None:
    flights: SingleFlight[str] = SingleFlight()
    work = Work()
    tasks = [await joined(flights, work) for _ in range(5)]
    assert "key" in flights
    work.gate.set()
    assert {await task for task in tasks} == {"result 1"}
    assert work.begun == 1
    assert "key" not in flights


async def test_the_first_caller_may_be_cancelled_and_the_others_are_answered() -> None:
    flights: SingleFlight[str] = SingleFlight()
    work = Work()
    leader, follower = await joined(flights, work), await joined(flights, work)
    leader.cancel()
    await asyncio.wait({leader})
    work.gate.set()
    assert await follower == "result 1"
    assert (work.begun, work.stopped) == (1, 0)


async def test_work_without_callers_is_cancelled_and_restarted_for_the_next() -> None:
    flights: SingleFlight[str] = SingleFlight()
    work = Work()
    tasks = [await joined(flights, work) for _ in range(2)]
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    later = await joined(flights, work)
    assert (work.begun, work.stopped) == (2, 1)
    work.gate.set()
    assert await later == "result 2"


async def test_work_that_finishes_despite_its_cancellation_answers_the_last_caller() -> None:
    flights: SingleFlight[str] = SingleFlight()
    gate = asyncio.Event()

    async def work() -> str:
        try:
            await gate.wait()
        except asyncio.CancelledError:
            await gate.wait()
        return "stored"

    tasks = [asyncio.create_task(flights.run_or_join("key", work)) for _ in range(2)]
    await asyncio.sleep(0.01)
    tasks[0].cancel()
    await asyncio.wait({tasks[0]})
    tasks[1].cancel()
    await asyncio.sleep(0.01)
    assert "key" not in flights
    gate.set()
    assert (tasks[0].cancelled(), await tasks[1]) == (True, "stored")


@pytest.mark.parametrize("callers", [1, 2])
async def test_a_caller_that_is_cancelled_when_the_work_has_just_finished_gets_its_result(callers: int) -> None:
    """Otherwise its deadline would turn a result that is stored already into an error."""
    flights: SingleFlight[str] = SingleFlight()
    gate = asyncio.Event()

    async def work() -> str:
        await gate.wait()
        for task in tasks:
            asyncio.get_running_loop().call_soon(task.cancel)  # before the callers see that the work is done
        return "stored"

    tasks = [asyncio.create_task(flights.run_or_join("key", work)) for _ in range(callers)]
    await asyncio.sleep(0)
    gate.set()
    assert [await task for task in tasks] == ["stored"] * callers


async def test_a_failure_reaches_all_callers_and_is_not_cached() -> None:
    flights: SingleFlight[str] = SingleFlight()
    work = Work()
    work.error = RuntimeError("engine")
    tasks = [await joined(flights, work) for _ in range(3)]
    work.gate.set()
    for task in tasks:
        with pytest.raises(RuntimeError, match="engine"):
            await task
    work.error = None
    assert await flights.run_or_join("key", work) == "result 2"


async def test_different_keys_do_not_wait_for_each_other() -> None:
    flights: SingleFlight[str] = SingleFlight()
    blocked, free = Work(), Work()
    free.gate.set()
    waiting = await joined(flights, blocked)
    assert await flights.run_or_join("other", free) == "result 1"
    blocked.gate.set()
    await waiting
