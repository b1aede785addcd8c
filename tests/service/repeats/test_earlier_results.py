"""A process died after it stored the results of a keyed request: its repeat is answered with them or replaces them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from service.core.call import Call, Timings
from service.core.errors import Gone, NotReady
from service.core.order import Order
from service.core.pictures import Size
from service.core.reply import Encoded, Reply
from service.core.schemas import GenerateOptions
from service.repeats import idempotency_table
from service.repeats.attempt import Attempt, ResultsToStore
from service.repeats.earlier_results import EarlierResults
from service.repeats.idempotency import Idempotency
from service.repeats.idempotency_table import Claim
from service.repeats.response_files import StoredResponse
from service.saving.results import StoredResult
from service.saving.sidecar import sidecar_of
from service.saving.storage.disk import ResultFiles
from service.saving.store import ResultStore
from tests.fakes.clock import Clock
from tests.fakes.lost_answers import LosesAnswers
from tests.service.repeats.processes import process
from tests.service.saving.store.slow_storage import SlowFiles, open_store

THREE = ResultsToStore(3, "me")
ORDER = Order("generate", {}, GenerateOptions(count=3))


def reply_with(attempt: Attempt) -> Reply:
    pictures = tuple(Encoded(b"%d" % index, one) for index, one in enumerate(attempt.result_ids))
    facts = (Size(8, 16), "photos/1", "fake/fp32", 2, 0.5, 7)
    return Reply(pictures, "image/png", *facts, Timings({"infer": 0.25}), texture="copied")


@dataclass
class Painter:
    """Work that stores three pictures, or `stored` of them, and then hangs if it is to be killed."""

    store: ResultStore
    hangs: bool = False
    stored: int = 3
    shares: bool = False
    refusal: NotReady | None = None
    """Raised, once, after the pictures were stored."""
    saves: bool = False
    """Whether the results are in the storage before the refusal."""
    attempts: list[Attempt] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, attempt: Attempt) -> StoredResponse:
        self.attempts.append(attempt)
        reply = attempt.earlier or self.paint(attempt)
        self.done.set()
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            assert not (self.saves and self.store.flush(20))
            raise refusal
        if self.hangs:
            await asyncio.Event().wait()
        ids = tuple(one.result_id for one in reply.pictures if one.result_id)
        return StoredResponse(200, (), b"".join(one.body for one in reply.pictures), ids)

    def paint(self, attempt: Attempt) -> Reply:
        reply = reply_with(attempt)
        for index, one in list(enumerate(reply.pictures))[: self.stored]:
            sidecar = sidecar_of(reply, index, ORDER, Call("request", 0.0, 1.0))
            result = StoredResult(attempt.result_ids[index], one.body, reply.media_type, sidecar)
            self.store.put(self.store.reserve(1), result)
        return reply


@asynccontextmanager
async def server(
    root: Path, storage: ResultFiles, *, durable: bool = False, clock: Clock | None = None
) -> AsyncIterator[tuple[Idempotency, Painter]]:
    with open_store(storage) as store:
        async with process(root, clock) as plain:
            index, earlier = store.index, EarlierResults(store, durable)
            yield (
                replace(
                    plain,
                    deleted=index.deleted,
                    left_by=earlier.left_by,
                    bury_in=index.bury_in,
                    stored_in=earlier.stored_in,
                ),
                Painter(store),
            )


async def die(root: Path, storage: ResultFiles, **how: object) -> Attempt:
    """Let a process claim the key and store results, and end before it answers."""
    async with server(root, storage) as (keys, ready):
        painter = replace(ready, hangs=True, **how)
        hanging = asyncio.create_task(keys.run_once("key", "print", painter, THREE))
        await painter.done.wait()
        (attempt,) = painter.attempts
        if painter.shares:
            assert await keys.ledger.write(attempt.may_share)
        await keys.close()
    hanging.cancel()
    await asyncio.wait({hanging})
    return attempt


@pytest.fixture
def storage(tmp_path: Path) -> ResultFiles:
    return ResultFiles(tmp_path)


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


async def test_a_refused_request_leaves_its_key_free_for_another_request(tmp_path: Path, storage: ResultFiles) -> None:
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
    async with server(tmp_path, storage) as (keys, painter):
        monkeypatch.setattr(type(keys.responses), "keep", refuse_to_keep)
        with pytest.raises(NotReady):
            await keys.run_once("key", "print", painter, THREE)
        monkeypatch.undo()
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
