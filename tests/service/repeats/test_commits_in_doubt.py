"""A database that goes away between a commit and its answer: keys stay usable, and an answer stays the only one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from service.core.errors import NotReady
from service.ledger.contract import Transaction, unavailable
from service.ledger.sqlite_file import LEDGER_FILE, SqliteFile
from service.repeats import idempotency_table
from service.repeats.idempotency import key_name
from service.repeats.response_files import KeptResponse
from tests.service.repeats.processes import process

NAME = key_name("key", "someone", "inpaint")
T = TypeVar("T")


class LosesAnswers(SqliteFile):
    """A ledger that writes, and then cannot tell that it has, once for each time that it was told to."""

    def __init__(self, root: Path) -> None:
        super().__init__(root / LEDGER_FILE, [idempotency_table.SCHEMA])
        self.lose = 0

    def write(self, work: Callable[[Transaction], T], *, synced: bool = False) -> T:
        done = super().write(work, synced=synced)
        if self.lose:
            self.lose -= 1
            raise unavailable("the connection broke during the commit")
        return done


async def test_a_key_whose_claim_was_written_although_it_seemed_to_fail_is_free_again(tmp_path: Path) -> None:
    async def work() -> KeptResponse:
        return KeptResponse(200, (), b"picture")

    async with process(tmp_path) as one:
        one.ledger.connections = ledger = LosesAnswers(tmp_path)
        ledger.open()
        ledger.lose = 1
        with pytest.raises(NotReady):
            await one.run_once(NAME, "a", work)
        assert (await asyncio.wait_for(one.run_once(NAME, "a", work), 5.0)).body == b"picture"


async def test_an_answer_that_was_recorded_although_it_seemed_to_fail_is_what_a_repeat_gets(tmp_path: Path) -> None:
    done = 0
    async with process(tmp_path) as one:
        one.ledger.connections = ledger = LosesAnswers(tmp_path)
        ledger.open()

        async def work() -> KeptResponse:
            nonlocal done
            done += 1
            ledger.lose = done == 1
            return KeptResponse(200, (), b"%d" % done)

        with pytest.raises(NotReady):
            await one.run_once(NAME, "a", work)
        await asyncio.sleep(0.1)  # for what runs behind the refusal
        assert (await one.run_once(NAME, "a", work)).body == b"1"
    assert done == 1
