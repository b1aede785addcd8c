"""A request is refused, or its client leaves, after its results were stored: its repeat is answered with them."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.core.errors import NotReady
from service.repeats import idempotency, idempotency_table
from service.repeats.idempotency_table import Claim
from service.saving.storage.disk import ResultFiles
from tests.fakes.clock import Clock
from tests.service.repeats.processes import process
from tests.service.repeats.work import THREE, die, reply_with, server


@pytest.mark.parametrize("saved", [False, True])
async def test_a_request_that_was_refused_after_it_stored_its_results_is_repeated_with_them(
    tmp_path: Path, storage: ResultFiles, saved: bool
) -> None:
    async with server(tmp_path, storage) as (keys, ready), process(tmp_path) as other:
        painter = replace(ready, refusal=NotReady("the storage did not accept them in time"))
        painter.saves = saved
        with pytest.raises(NotReady, match="in time"):
            await keys.run_once("key", "print", painter, THREE)
        elsewhere = replace(other, deleted=keys.deleted, left_by=keys.left_by)
        answer = await elsewhere.run_once("key", "print", painter, THREE)
        first, repeat = painter.attempts
        assert answer.result_ids == first.result_ids
        assert repeat.earlier == reply_with(first)
        assert (await keys.run_once("key", "print", painter, THREE)).result_ids == first.result_ids


async def test_a_refused_request_that_stored_only_some_results_is_repeated_with_new_ones(
    tmp_path: Path, storage: ResultFiles
) -> None:
    clock = Clock()
    async with server(tmp_path, storage, clock=clock) as (keys, ready):
        painter = replace(ready, refusal=NotReady("the disk is full"), stored=2)
        with pytest.raises(NotReady, match="full"):
            await keys.run_once("key", "print", painter, THREE)
        painter.stored = 3
        clock.now += 1
        answer = await keys.run_once("key", "print", painter, THREE)
        first = set(painter.attempts[0].result_ids)
        assert not set(answer.result_ids) & first
        assert painter.store.index.deleted(first) == first


async def test_a_refused_request_leaves_its_key_free_for_another_request(
    tmp_path: Path, storage: ResultFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "_MAX_RELEASE_S", 60.0)  # the error comes after the release, however busy the disk
    clock = Clock()
    async with server(tmp_path, storage, clock=clock) as (keys, ready):
        painter = replace(ready, refusal=NotReady("the storage did not accept them in time"))
        with pytest.raises(NotReady):
            await keys.run_once("key", "print", painter, THREE)
        clock.now += 1
        other = await keys.run_once("key", "another print", painter, THREE)
        assert not set(other.result_ids) & set(painter.attempts[0].result_ids)


async def test_an_answer_that_could_not_be_kept_is_given_to_the_repeat(
    tmp_path: Path, storage: ResultFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    async with server(tmp_path, storage, clock=clock) as (keys, painter):
        monkeypatch.setattr(type(keys.responses), "keep", refuse_to_keep)
        with pytest.raises(NotReady):
            await keys.run_once("key", "print", painter, THREE)
        monkeypatch.undo()
        clock.now += 1
        answer = await keys.run_once("key", "print", painter, THREE)
        assert answer.result_ids == painter.attempts[0].result_ids


async def test_results_that_the_ledger_did_not_list_while_it_was_away_are_given_to_the_repeat(
    tmp_path: Path, storage: ResultFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    async with server(tmp_path, storage, clock=clock) as (keys, ready):
        painter = replace(ready, refusal=NotReady("the ledger is away"), saves=True)
        monkeypatch.setattr(painter.store.index, "write", refuse_to_keep)
        with pytest.raises(NotReady, match="away"):
            await keys.run_once("key", "print", painter, THREE)
        monkeypatch.undo()
        clock.now += 1
        answer = await keys.run_once("key", "print", painter, THREE)
        assert answer.result_ids == painter.attempts[0].result_ids


def refuse_to_keep(*_: object) -> None:
    raise NotReady("the bucket is unavailable", code="storage_unavailable")


@pytest.mark.parametrize("saved", [False, True])
async def test_who_leaves_while_the_repeat_takes_over_the_key_loses_no_results(
    tmp_path: Path, storage: ResultFiles, monkeypatch: pytest.MonkeyPatch, saved: bool
) -> None:
    first = await die(tmp_path, storage)
    claim, claiming, gate = idempotency_table.claim, threading.Event(), threading.Event()

    def slow_claim(*arguments: Any, **named: Any) -> list[Claim] | None:
        claiming.set()
        assert gate.wait(20)
        return claim(*arguments, **named)

    async with server(tmp_path, storage) as (keys, painter):
        if saved:
            assert not painter.store.flush(20)
        monkeypatch.setattr(idempotency_table, "claim", slow_claim)
        leaving = asyncio.create_task(keys.run_once("key", "print", painter, THREE))
        assert await asyncio.to_thread(claiming.wait, 20)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        gate.set()
        answer = await asyncio.wait_for(keys.run_once("key", "print", painter, THREE), 20)
        assert answer.result_ids == first.result_ids
        assert [attempt.earlier for attempt in painter.attempts] == [reply_with(first)]
