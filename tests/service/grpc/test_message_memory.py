"""The limit on memory for arriving messages and for unread replies."""

from __future__ import annotations

import asyncio

import pytest

from service.core.errors import Overloaded
from service.grpc.message_memory import MessageMemory


class Sender:
    """A client whose message keeps arriving until `release`."""

    def __init__(self, memory: MessageMemory, client: str) -> None:
        self.has_place, self._release = False, asyncio.Event()
        self.task = asyncio.ensure_future(self._send(memory, client))

    async def _send(self, memory: MessageMemory, client: str) -> None:
        async with memory.arriving(client):
            self.has_place = True
            await self._release.wait()

    async def release(self) -> None:
        self._release.set()
        await self.task
        await asyncio.sleep(0)


async def test_a_client_has_half_of_the_slots_and_others_pass_it() -> None:
    memory = MessageMemory(max_bytes=400.0, message_bytes=100)
    assert memory.slots == 4
    many = [Sender(memory, "a") for _ in range(4)]
    await asyncio.sleep(0)
    other = Sender(memory, "b")
    await asyncio.sleep(0)
    assert [one.has_place for one in many] == [True, True, False, False]
    assert other.has_place
    assert memory.usage == (3, 2, 0)
    await many[0].release()
    await asyncio.sleep(0)
    assert [one.has_place for one in many] == [True, True, True, False]
    for one in (*many[1:], other):
        await one.release()
    assert memory.usage == (0, 0, 0)


async def test_a_sender_that_disconnects_while_it_waits_takes_no_slot() -> None:
    memory = MessageMemory(max_bytes=200.0, message_bytes=100)
    first, second, third = (Sender(memory, "a") for _ in range(3))
    await asyncio.sleep(0)
    second.task.cancel()
    await asyncio.sleep(0)
    await first.release()
    assert (second.has_place, third.has_place) == (False, True)
    await third.release()
    assert memory.usage == (0, 0, 0)


async def test_a_sender_that_is_cancelled_as_it_gets_its_slot_releases_it() -> None:
    memory = MessageMemory(max_bytes=200.0, message_bytes=100)
    first, second = Sender(memory, "a"), Sender(memory, "a")
    await asyncio.sleep(0)
    first._release.set()
    await first.task
    second.task.cancel()  # the slot was given to it, but its task has not run since
    with pytest.raises(asyncio.CancelledError):
        await second.task
    assert memory.usage == (0, 0, 0)


async def test_senders_that_are_cancelled_together_keep_no_slot() -> None:
    """A client that cancels its calls, or a broken connection, cancels all tasks before any of them runs."""
    memory = MessageMemory(max_bytes=400.0, message_bytes=100)
    senders = [Sender(memory, "a") for _ in range(8)]
    await asyncio.sleep(0)
    assert memory.usage == (2, 6, 0)
    for one in senders:
        one.task.cancel()
    ended = await asyncio.gather(*(one.task for one in senders), return_exceptions=True)
    assert {type(error) for error in ended} == {asyncio.CancelledError}
    assert memory.usage == (0, 0, 0)
    late = Sender(memory, "a")
    await asyncio.sleep(0)
    assert late.has_place
    await late.release()


async def test_there_are_always_two_slots() -> None:
    assert MessageMemory(max_bytes=10.0, message_bytes=100).slots == 2


async def test_a_client_that_does_not_read_its_replies_is_refused_and_others_are_not() -> None:
    memory = MessageMemory(max_bytes=400.0, message_bytes=100)
    with memory.unread("a", 201):
        with pytest.raises(Overloaded, match="read them first") as refused:
            async with memory.arriving("a"):
                pass
        assert refused.value.retry_after_s == 1.0
        async with memory.arriving("b"):
            assert memory.usage == (1, 0, 201)
        with memory.unread("b", 200), pytest.raises(Overloaded):
            async with memory.arriving("c"):
                pass
    async with memory.arriving("a"):
        pass
    assert memory.usage == (0, 0, 0)
