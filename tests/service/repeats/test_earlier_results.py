"""A process died after it stored the results of a keyed request: its repeat is answered with them or replaces them."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.core.errors import Gone, NotReady
from service.saving.storage.disk import ResultFiles
from tests.fakes.lost_answers import LosesAnswers
from tests.service.repeats.work import THREE, die, reply_with, server
from tests.service.saving.store.slow_storage import SlowFiles


async def test_a_repeat_is_answered_with_all_pictures_in_their_order(tmp_path: Path, storage: ResultFiles) -> None:
    first = await die(tmp_path, storage)
    async with server(tmp_path, storage) as (keys, painter):
        answer = await keys.run_once("key", "print", painter, THREE)
        again = await keys.run_once("key", "print", painter, THREE)
    (attempt,) = painter.attempts
    assert attempt.earlier == reply_with(first)
    assert answer == again
    assert (answer.body, answer.result_ids) == (b"012", first.result_ids)
    assert answer.headers == (("idempotency-replayed", "true"),)


async def test_a_second_death_leaves_the_results_to_the_next_repeat(tmp_path: Path, storage: ResultFiles) -> None:
    first = await die(tmp_path, storage)
    await die(tmp_path, storage)
    async with server(tmp_path, storage) as (keys, painter):
        assert (await keys.run_once("key", "print", painter, THREE)).result_ids == first.result_ids


async def test_pictures_without_the_others_are_deleted_for_those_of_the_repeat(
    tmp_path: Path, storage: ResultFiles
) -> None:
    first = await die(tmp_path, storage, stored=2)
    async with server(tmp_path, storage) as (keys, painter):
        answer = await keys.run_once("key", "print", painter, THREE)
        assert painter.attempts[0].earlier is None
        assert not set(answer.result_ids) & set(first.result_ids)
        assert painter.store.index.deleted(first.result_ids) == set(first.result_ids), "also one that comes late"
        assert "idempotency-replayed" not in dict(answer.headers)


async def test_results_that_others_may_have_been_given_are_not_deleted(tmp_path: Path, storage: ResultFiles) -> None:
    first = await die(tmp_path, storage, stored=2, shares=True)
    async with server(tmp_path, storage) as (keys, painter):
        await keys.run_once("key", "print", painter, THREE)
        assert painter.store.get(first.result_ids[0]) == (b"0", "image/png")


async def test_a_result_that_its_owner_deleted_is_not_made_again(tmp_path: Path, storage: ResultFiles) -> None:
    first = await die(tmp_path, storage)
    async with server(tmp_path, storage) as (keys, painter):
        painter.store.index.bury(first.result_ids[1], "me")
        with pytest.raises(Gone, match="deleted"):
            await keys.run_once("key", "print", painter, THREE)
        assert painter.store.get(first.result_ids[0]) is not None


async def test_another_request_with_the_key_gets_results_of_its_own(tmp_path: Path, storage: ResultFiles) -> None:
    first = await die(tmp_path, storage)
    async with server(tmp_path, storage) as (keys, painter):
        other = await keys.run_once("key", "another print", painter, THREE)
        assert not set(other.result_ids) & set(first.result_ids)
        assert painter.store.get(first.result_ids[0]) is not None


async def test_where_a_reply_promises_the_storage_a_repeat_waits_for_it(tmp_path: Path) -> None:
    storage = SlowFiles(tmp_path)
    storage.gate.set()
    storage.error = OSError("the bucket is away")
    first = await die(tmp_path, storage)
    async with server(tmp_path, storage, durable=True) as (keys, painter):
        with pytest.raises(NotReady) as refused:
            await keys.run_once("key", "print", painter, THREE)
        assert (refused.value.code, painter.attempts) == ("storage_unavailable", [])
        storage.error = None
        assert not painter.store.flush(20)
        assert (await keys.run_once("key", "print", painter, THREE)).result_ids == first.result_ids


async def test_a_request_that_stores_results_takes_two_writes_to_the_ledger(
    tmp_path: Path, storage: ResultFiles
) -> None:
    async with server(tmp_path, storage) as (keys, painter):
        keys.ledger.connections = ledger = LosesAnswers(tmp_path)
        ledger.open()
        await keys.run_once("key", "print", painter, THREE)
        assert ledger.writes == 2


async def test_stored_results_that_the_dead_process_did_not_list_are_listed(
    tmp_path: Path, storage: ResultFiles
) -> None:
    first = await die(tmp_path, storage)
    async with server(tmp_path, storage) as (keys, painter):
        assert not painter.store.flush(20)
        painter.store.index.forget(first.result_ids)
        await keys.run_once("key", "print", painter, THREE)
        rows = [painter.store.index.find(one) for one in first.result_ids]
        assert [row is not None and row.saved for row in rows] == [True] * 3
