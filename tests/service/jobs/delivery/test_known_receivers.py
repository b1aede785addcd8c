"""Messages to receivers that answered before go first, however many unknown or silent receivers there are."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.jobs import webhook_table
from service.jobs.delivery.sender import RETRY_AFTER_S
from service.jobs.delivery.slots import OriginHistory
from service.jobs.webhook_table import Delivery
from service.ledger.contract import Transaction
from service.lifecycle.background import cancel_and_wait
from tests.fakes.clock import Clock
from tests.serving.backing.webhook_receiver import (
    Receiver,
    announce,
    announce_many,
    deliverer,
    ended,
    found,
    on_loopback,
    outcomes,
    receiving,
)
from tests.serving.waiting import until


async def test_however_many_unknown_receivers_hang_a_known_one_has_a_slot(tmp_path: Path, receiver: Receiver) -> None:
    clock = Clock(1e9)
    async with receiving(hangs=True) as hung, deliverer(tmp_path, clock, resolve=on_loopback) as one:
        await announce_many(one, receiver, "known", 1)
        assert await one.deliver_due() == 1
        for number in range(40):
            await announce_many(one, hung, f"unknown{number}", 1)
        delivering = asyncio.create_task(replace(one, timeout_s=40.0, slot_s=40.0).deliver_due())
        await until(lambda: hung.waiting == 12)
        clock.now += 1.0
        await announce(one, replace(ended(receiver.url.replace("127.0.0.1", "known.test")), id="second"))
        await until(lambda: len(receiver.got) == 2)
        assert hung.most_waiting == 12
        hung.let_go()
        assert await delivering == 41


@pytest.mark.parametrize("tries", [0, 1])
async def test_a_message_to_a_known_receiver_is_found_among_thousands_to_unknown_ones(
    tmp_path: Path, receiver: Receiver, tries: int
) -> None:
    async with receiving(hangs=True) as hung, deliverer(tmp_path, Clock(1e9), resolve=on_loopback) as one:
        await announce_many(one, receiver, "known", 1)
        assert await one.deliver_due() == 1

        def add(ledger: Transaction) -> None:
            for number in range(2001):
                host, to = ("known", receiver) if number == 1000 else (f"unknown{number}", hung)
                url = to.url.replace("127.0.0.1", f"{host}.test")
                webhook_table.add(ledger, Delivery(f"msg_{number}", url, "{}", 1e8 + number))
            ledger.execute("UPDATE deliveries SET tries = ? WHERE id = 'msg_1000'", (tries,))

        await one.ledger.write(add)
        delivering = asyncio.create_task(replace(one, timeout_s=40.0, slot_s=40.0).deliver_due())
        await until(lambda: len(receiver.got) == 2)
        assert len(hung.got) <= 12
        await cancel_and_wait(delivering)


async def test_a_receiver_that_missed_one_attempt_does_not_wait_for_silent_ones(
    tmp_path: Path, receiver: Receiver
) -> None:
    clock = Clock(1e9)
    addresses = ["127.0.0.1"]

    async def resolve(_host: str, port: int, _family: int) -> list[Any]:
        return found(addresses[0], port)

    async with receiving(hangs=True) as hung, deliverer(tmp_path, clock, resolve=resolve) as one:
        await announce_many(one, receiver, "known", 1)
        assert await one.deliver_due() == 1
        addresses[0] = "127.0.0.2"
        for number in range(20):
            await announce_many(one, hung, f"never{number}", 1)
        known = receiver.url.replace("127.0.0.1", "known.test")
        await announce(one, replace(ended(known), id="missed"))
        assert await one.deliver_due() == 21
        assert outcomes(one) == {"delivered": 1, "failed": 21}
        addresses[0] = "127.0.0.1"
        clock.now += RETRY_AFTER_S[0]
        delivering = asyncio.create_task(replace(one, timeout_s=40.0).deliver_due())
        await until(lambda: hung.waiting == 4)
        await until(lambda: len(receiver.got) == 2)
        assert len(hung.got) == 4
        hung.let_go()
        await delivering


def test_however_many_receivers_are_silent_known_ones_are_remembered() -> None:
    answers = OriginHistory()
    answers.record("https://known.test", answered=True)
    for number in range(9000):
        answers.record(f"https://silent{number}.test", answered=False)
    assert answers.last("https://known.test") == (1, "answers")
    assert answers.last("https://silent0.test") == (0, "new")
    answers.record("https://known.test", answered=False)
    assert answers.last("https://known.test")[1] == "missed"
    assert answers.known() == ["https://known.test"]
