"""Deadlines: every request is answered in time, and none is computed after its client has left."""

from __future__ import annotations

import asyncio
import sys
import weakref
from contextlib import suppress

import numpy as np
import pytest

from service.admission.deadline import await_with_deadline
from service.core.errors import Cancelled, DeadlineExceeded, InvalidImage


async def soon(seconds: float = 0.0, value: str = "done") -> str:
    await asyncio.sleep(seconds)
    return value


async def test_the_answer_is_returned() -> None:
    assert await await_with_deadline(soon(), 5.0) == "done"


async def test_the_error_of_the_work_is_raised() -> None:
    async def fail() -> str:
        raise InvalidImage("no")

    with pytest.raises(InvalidImage):
        await await_with_deadline(fail(), 5.0)


async def test_the_deadline_cancels_the_work() -> None:
    stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    with pytest.raises(DeadlineExceeded):
        await await_with_deadline(work(), 0.01)
    assert stopped.is_set()


async def test_a_client_that_disconnects_cancels_the_work() -> None:
    stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    disconnected = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.01, disconnected.set_result, None)
    with pytest.raises(Cancelled):
        await await_with_deadline(work(), 60.0, disconnected)
    assert stopped.is_set()


@pytest.mark.usefixtures("no_collections")
async def test_results_computed_until_the_deadline_are_freed_without_a_garbage_collection() -> None:
    pictures: list[weakref.ref[object]] = []

    async def work() -> None:
        picture = np.zeros(1)
        pictures.append(weakref.ref(picture))
        await asyncio.sleep(60)

    with suppress(DeadlineExceeded):
        await await_with_deadline(work(), 0.01)
    await asyncio.sleep(0)  # the event loop refers to the error until its next pass
    assert pictures[0]() is None


async def test_work_for_a_disconnected_client_is_cancelled_at_once() -> None:
    disconnected = asyncio.get_running_loop().create_future()
    disconnected.set_result(None)
    with pytest.raises(Cancelled):
        await await_with_deadline(soon(60), 60.0, disconnected)


async def test_the_caller_continues_after_a_deadline() -> None:
    with pytest.raises(DeadlineExceeded):
        await await_with_deadline(soon(60), 0.01)
    assert await await_with_deadline(soon(0.01), 60.0) == "done"


async def test_a_deadline_after_work_that_finished_despite_an_earlier_one_is_a_deadline_too() -> None:
    async def store() -> str:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return "stored"

    assert await await_with_deadline(store(), 0.01) == "stored"
    with pytest.raises(DeadlineExceeded):
        await await_with_deadline(soon(60), 0.01)


async def test_a_finished_answer_wins_over_a_disconnect() -> None:
    disconnected = asyncio.get_running_loop().create_future()
    assert await await_with_deadline(soon(), 5.0, disconnected) == "done"
    disconnected.set_result(None)
    assert await await_with_deadline(soon(), 5.0) == "done"


async def test_cancelling_the_waiter_cancels_the_work() -> None:
    stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    task = asyncio.create_task(await_with_deadline(work(), 60.0))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped.is_set()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python counts a task's cancellations from 3.11 on")
async def test_a_task_that_is_stopped_as_its_client_disconnects_stops() -> None:
    disconnected = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(await_with_deadline(soon(60), 60.0, disconnected))
    await asyncio.sleep(0)
    disconnected.set_result(None)
    asyncio.get_running_loop().call_soon(task.cancel)  # after the disconnect, before the task has noticed it
    with pytest.raises(asyncio.CancelledError):
        await task
