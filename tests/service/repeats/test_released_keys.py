"""A key whose request failed, or whose client left, is free again."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from service.core.errors import InvalidImage
from service.repeats import idempotency, idempotency_table
from service.repeats.request_digests import key_name
from tests.service.repeats.processes import process
from tests.service.repeats.work import Work

NAME = key_name("key", "someone", "inpaint")


async def test_a_failed_request_gives_its_key_back_and_so_does_one_whose_client_left(tmp_path: Path) -> None:
    async with process(tmp_path) as one:
        failing = Work(InvalidImage("not an image"))
        for _ in range(2):
            with pytest.raises(InvalidImage):
                await one.run_once(NAME, "a", failing)
        assert failing.done == 2
        leaving = Work(blocked=True)
        left = asyncio.create_task(one.run_once(NAME, "a", leaving))
        await leaving.begun.wait()
        waiting = asyncio.create_task(one.run_once(NAME, "a", Work()))
        left.cancel()
        assert (await waiting).status == 200


async def test_a_failed_request_has_given_its_key_back_before_its_error_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = idempotency_table.release_unanswered

    def slow_release(ledger: sqlite3.Connection, claimed: idempotency_table.Claim) -> bool:
        time.sleep(0.05)  # as long as a busy disk takes
        return release(ledger, claimed)

    monkeypatch.setattr(idempotency_table, "release_unanswered", slow_release)
    monkeypatch.setattr(idempotency, "_MAX_RELEASE_S", 60.0)  # the error comes after the release, however busy the disk
    async with process(tmp_path) as one, process(tmp_path) as other:
        for next_one in (one, other):
            with pytest.raises(InvalidImage):
                await one.run_once(NAME, "broken", Work(InvalidImage("not an image")))
            with pytest.raises(InvalidImage):  # a corrected request may use the key
                await next_one.run_once(NAME, "corrected", Work(InvalidImage("not this one either")))
            slow = Work(blocked=True)
            late = asyncio.create_task(one.run_once(NAME, "slow", slow))
            await slow.begun.wait()
            late.cancel()  # as at its deadline
            with pytest.raises(asyncio.CancelledError):
                await late
            with pytest.raises(InvalidImage):
                await next_one.run_once(NAME, "quick", Work(InvalidImage("nor this one")))


async def test_an_error_waits_for_its_key_only_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def hanging_release(*_: Any) -> bool:
        assert gate.wait(20)
        return True

    monkeypatch.setattr(idempotency_table, "release_unanswered", hanging_release)
    monkeypatch.setattr(idempotency, "_MAX_RELEASE_S", 0.01)
    async with process(tmp_path) as one:
        with pytest.raises(InvalidImage):
            await one.run_once(NAME, "a", Work(InvalidImage("not an image")))
        assert not gate.is_set()
        gate.set()


async def test_who_leaves_while_the_key_is_being_claimed_leaves_it_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, claiming, gate = idempotency_table.claim, threading.Event(), threading.Event()

    def slow_claim(*arguments: Any, **named: Any) -> list[idempotency_table.Claim] | None:
        claiming.set()
        assert gate.wait(20)
        return claim(*arguments, **named)

    monkeypatch.setattr(idempotency_table, "claim", slow_claim)
    async with process(tmp_path) as one:
        work = Work()
        left = asyncio.create_task(one.run_once(NAME, "a", work))
        assert await asyncio.to_thread(claiming.wait, 20)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        gate.set()
        assert (await asyncio.wait_for(one.run_once(NAME, "a", work), 20)).status == 200
    assert work.done == 1


async def test_a_key_is_given_back_once_the_disk_takes_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, full = idempotency_table.release_unanswered, [sqlite3.OperationalError("database or disk is full")]

    def release_or_fail(ledger: sqlite3.Connection, claimed: idempotency_table.Claim) -> bool:
        if full:
            raise full.pop()
        return release(ledger, claimed)

    monkeypatch.setattr(idempotency_table, "release_unanswered", release_or_fail)
    async with process(tmp_path) as one, process(tmp_path) as other:
        with pytest.raises(InvalidImage):
            await one.run_once(NAME, "a", Work(InvalidImage("not an image")))
        assert (await asyncio.wait_for(other.run_once(NAME, "a", Work()), 20)).status == 200
    assert not full
