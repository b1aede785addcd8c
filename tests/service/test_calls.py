"""Nobody waits for ever, and nothing is computed for nobody."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message

from service.calls import answer, until_gone
from service.errors import Cancelled, DeadlineExceeded, InvalidImage


async def soon(seconds: float = 0.0, value: str = "done") -> str:
    await asyncio.sleep(seconds)
    return value


async def test_the_answer_is_returned() -> None:
    assert await answer(soon(), 5.0) == "done"


async def test_the_error_of_the_work_is_raised() -> None:
    async def fail() -> str:
        raise InvalidImage("no")

    with pytest.raises(InvalidImage):
        await answer(fail(), 5.0)


async def test_the_deadline_cancels_the_work() -> None:
    stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    with pytest.raises(DeadlineExceeded):
        await answer(work(), 0.01)
    assert stopped.is_set()


async def test_a_client_that_leaves_cancels_the_work() -> None:
    stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    with pytest.raises(Cancelled):
        await answer(work(), 60.0, soon(0.01))  # type: ignore[arg-type]
    assert stopped.is_set()


async def test_an_answer_that_is_there_wins_over_a_client_that_leaves() -> None:
    assert await answer(soon(), 5.0, soon()) == "done"  # type: ignore[arg-type]


async def test_only_a_disconnect_counts_as_gone() -> None:
    messages: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}, {"type": "http.disconnect"}]

    async def receive() -> Message:
        return messages.pop(0)

    await until_gone(receive)
    assert messages == []


async def test_cancelling_the_waiter_cancels_the_work() -> None:
    stopped = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    task = asyncio.create_task(answer(work(), 60.0))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped.is_set()
