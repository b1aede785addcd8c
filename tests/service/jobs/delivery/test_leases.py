"""Only one process at a time sends a message; a process that lost its lease leaves the message alone."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from service.jobs import webhook_table
from service.jobs.delivery.sender import RETRY_AFTER_S
from service.ledger.sqlite_file import LEDGER_FILE
from service.lifecycle.background import cancel_and_wait
from tests.fakes.clock import Clock
from tests.fakes.lost_answers import LosesAnswers
from tests.serving.backing.webhook_receiver import (
    Outcomes,
    Receiver,
    announce,
    deliverer,
    ended,
    outcomes,
    receiving,
    webhook_state,
)
from tests.serving.waiting import until


async def test_one_of_two_processes_delivers_and_messages_of_a_dead_one_are_claimed_again(
    tmp_path: Path, receiver: Receiver
) -> None:
    clock = Clock(1e9)
    async with deliverer(tmp_path, clock) as one, deliverer(tmp_path, clock) as other:
        await announce(one, ended(receiver.url))
        message = [f"msg_{ended(receiver.url).id}"]
        taken = await one.ledger.write(lambda ledger: webhook_table.claim(ledger, message, clock.now, clock.now + 60))
        assert len(taken) == 1
        assert await other.deliver_due() == 0
        clock.now += 60
        assert await other.deliver_due() == 1
    assert len(receiver.got) == 1


async def test_a_sender_paused_since_its_claim_sends_nothing(tmp_path: Path, receiver: Receiver) -> None:
    clock = Clock(1e9)

    def stand_still() -> None:
        clock.now += 50.0

    async with deliverer(tmp_path, clock) as one, deliverer(tmp_path, clock) as other:
        await announce(one, ended(receiver.url))
        one.ledger.connections = ledger = LosesAnswers(tmp_path, stand_still)
        ledger.open()
        await one.deliver_due()
        assert receiver.got == []
        clock.now += 10.0
        await other.deliver_due()
    assert len(receiver.got) == 1


async def test_a_sender_whose_claim_has_expired_leaves_the_message_to_its_new_owner(
    tmp_path: Path, receiver: Receiver
) -> None:
    clock = Clock(1e9)
    with closing(sqlite3.connect(tmp_path / LEDGER_FILE)) as table:

        def claimed_meanwhile() -> None:
            clock.now += 60.0
            with table:
                table.execute("UPDATE deliveries SET next_at = ?, tries = 2", (clock.now + 60.0,))

        async with deliverer(tmp_path, clock) as one, deliverer(tmp_path, clock) as third:
            await announce(one, ended(receiver.url))
            receiver.statuses, receiver.before_answering = [500], claimed_meanwhile
            await one.deliver_due()
            clock.now += 59.0
            assert await third.deliver_due() == 0
            assert await webhook_state(one) == {"state": "pending", "tries": 0, "reason": None}


async def test_a_sender_that_ends_records_answers_that_arrive_soon(tmp_path: Path) -> None:
    clock = Clock(1e9)
    async with receiving(hangs=True) as slow, deliverer(tmp_path, clock) as one, deliverer(tmp_path, clock) as other:
        await announce(one, ended(slow.url))
        delivering = asyncio.create_task(replace(one, end_s=30.0).deliver_due())
        await until(lambda: slow.waiting)
        ending = asyncio.create_task(cancel_and_wait(delivering))
        await asyncio.sleep(0.1)
        slow.let_go()
        await ending
        clock.now += 60.0
        assert await other.deliver_due() == 0
        assert (outcomes(one), len(slow.got)) == ({"delivered": 1}, 1)


async def test_a_sender_that_ends_leaves_its_messages_to_the_next_one(tmp_path: Path) -> None:
    clock = Clock(1e9)
    async with receiving(hangs=True) as hung, deliverer(tmp_path, clock) as one, deliverer(tmp_path, clock) as other:
        await announce(one, ended(hung.url))
        delivering = asyncio.create_task(replace(one, end_s=0.01).deliver_due())
        await until(lambda: hung.waiting)
        await cancel_and_wait(delivering)
        hung.let_go()
        clock.now += 60.0
        assert await other.deliver_due() == 1
        assert (outcomes(one), outcomes(other)) == ({}, {"delivered": 1})
    assert len({headers["webhook-id"] for headers, _ in hung.got}) == 1


async def test_a_claim_whose_commit_was_lost_ends_no_attempt(tmp_path: Path, receiver: Receiver) -> None:
    clock = Clock(1e9)
    async with receiving(hangs=True) as hung, deliverer(tmp_path, clock) as one, deliverer(tmp_path, clock) as other:
        await announce(one, ended(hung.url))
        one.ledger.connections = ledger = LosesAnswers(tmp_path)
        ledger.open()
        delivering = asyncio.create_task(one.deliver_due())
        await until(lambda: hung.waiting)
        ledger.lose = 1
        elsewhere = receiver.url.replace("127.0.0.1", "localhost")
        await announce(other, replace(ended(elsewhere), id="j2"))
        await until(lambda: not ledger.lose)
        hung.let_go()
        assert await delivering == 1
        clock.now += 60.0
        assert await one.deliver_due() == 1
    assert (len(hung.got), len(receiver.got)) == (1, 1)


async def test_an_attempt_that_breaks_ends_no_other_one(tmp_path: Path, receiver: Receiver) -> None:
    class BreaksOnce(Outcomes):
        def webhook_attempted(self, outcome: str) -> None:
            super().webhook_attempted(outcome)
            if self.total() == 1:
                raise RuntimeError("a bug")

    async with deliverer(tmp_path, Clock(1e9)) as one:
        for index in range(9):
            await announce(one, replace(ended(receiver.url), id=f"j{index}"))
        assert await replace(one, observer=BreaksOnce()).deliver_due() == 9
    assert len(receiver.got) == 9


@pytest.mark.parametrize("answers", [[], [500], [500, 500, 500]])
async def test_a_message_does_not_wait_until_a_clock_that_was_set_back_shows_its_time_again(
    tmp_path: Path, receiver: Receiver, answers: list[int]
) -> None:
    receiver.statuses = answers.copy()
    clock = Clock(1e9)
    async with deliverer(tmp_path, clock) as one:
        await announce(one, ended(receiver.url))
        for pause_s in RETRY_AFTER_S[: len(answers)]:
            await one.deliver_due()
            clock.now += pause_s
        clock.now -= 90 * 86_400
        await one.make_due_after_clock_change()
        assert await one.deliver_due() == 1
        assert outcomes(one)["delivered"] == 1


async def test_a_message_keeps_its_pause_while_the_clock_goes_forward(tmp_path: Path, receiver: Receiver) -> None:
    receiver.statuses = [500, 500]
    clock = Clock(1e9)
    async with deliverer(tmp_path, clock) as one:
        await announce(one, ended(receiver.url))
        await one.deliver_due()
        clock.now += RETRY_AFTER_S[0]
        await one.deliver_due()
        clock.now += RETRY_AFTER_S[1] - 1.0
        await one.make_due_after_clock_change()
        assert await one.deliver_due() == 0
