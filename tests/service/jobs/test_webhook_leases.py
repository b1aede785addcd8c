"""One process at a time sends a message, and one that lost it leaves it alone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from service.jobs import webhook_table
from service.ledger.sqlite_file import LEDGER_FILE
from tests.fakes.clock import Clock
from tests.fakes.lost_answers import LosesAnswers
from tests.serving.backing.webhook_receiver import Receiver, announce, deliverer, ended, told


async def test_of_two_processes_one_delivers_and_what_a_dead_one_took_comes_back(
    tmp_path: Path, receiver: Receiver
) -> None:
    clock = Clock(1e9)
    async with deliverer(tmp_path, clock) as one, deliverer(tmp_path, clock) as other:
        await announce(one, ended(receiver.url))
        taken = await one.ledger.write(lambda ledger: webhook_table.claim_due(ledger, clock.now, clock.now + 60, 16))
        assert len(taken) == 1
        assert await other.deliver_due() == 0
        clock.now += 60
        assert await other.deliver_due() == 1
    assert len(receiver.got) == 1


async def test_who_stood_still_since_its_claim_sends_nothing_as_another_does(
    tmp_path: Path, receiver: Receiver
) -> None:
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


async def test_a_sender_whose_claim_has_ended_leaves_the_message_to_the_one_that_has_it(
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
            assert await told(one) == {"state": "pending", "tries": 0, "reason": None}
