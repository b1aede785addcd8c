"""A database that goes away between a commit and its answer: keys stay usable, and an answer stays the only one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from service.core.errors import NotReady
from service.repeats.idempotency import key_name
from service.repeats.response_files import KeptResponse
from tests.fakes.lost_answers import LosesAnswers
from tests.service.repeats.processes import process

NAME = key_name("key", "someone", "inpaint")


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
