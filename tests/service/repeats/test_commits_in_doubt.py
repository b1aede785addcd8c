"""The database fails between a commit and its confirmation: keys stay usable, and each key keeps one answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest

from service.core.errors import NotReady
from service.ledger.contract import Transaction, unavailable
from service.repeats import idempotency_table
from service.repeats.attempt import Attempt
from service.repeats.idempotency_table import Claim
from service.repeats.request_digests import key_name
from service.repeats.response_files import LocalResponseFiles, StoredResponse
from tests.fakes.clock import Clock
from tests.fakes.lost_answers import LosesAnswers
from tests.service.repeats.processes import kept, process
from tests.serving.waiting import until

T = TypeVar("T")
NAME = key_name("key", "someone", "inpaint")


class HangingBucket(LocalResponseFiles):
    """Responses in a bucket that refuses to store any, and hangs when one is deleted."""

    by_claim: ClassVar[bool] = True

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.dropping, self.go_on = threading.Event(), threading.Event()

    def keep(self, claim: Claim, response: StoredResponse) -> None:
        raise NotReady("the bucket is unavailable", code="storage_unavailable")

    def drop(self, claim: Claim) -> None:
        self.dropping.set()
        assert self.go_on.wait(20)


async def test_a_key_whose_claim_was_committed_but_reported_as_failed_is_released(tmp_path: Path) -> None:
    async def work(_: Attempt) -> StoredResponse:
        return StoredResponse(200, (), b"picture")

    async with process(tmp_path) as one:
        one.ledger.connections = ledger = LosesAnswers(tmp_path)
        ledger.open()
        ledger.lose = 1
        with pytest.raises(NotReady):
            await one.run_once(NAME, "a", work)
        assert (await asyncio.wait_for(one.run_once(NAME, "a", work), 5.0)).body == b"picture"


async def test_a_repeat_gets_an_answer_whose_commit_was_reported_as_failed(tmp_path: Path) -> None:
    done = 0
    async with process(tmp_path) as one:
        one.ledger.connections = ledger = LosesAnswers(tmp_path)
        ledger.open()

        async def work(_: Attempt) -> StoredResponse:
            nonlocal done
            done += 1
            ledger.lose = done == 1
            return StoredResponse(200, (), b"%d" % done)

        with pytest.raises(NotReady):
            await one.run_once(NAME, "a", work)
        await asyncio.sleep(0.1)  # for the work that goes on after the refusal
        assert (await one.run_once(NAME, "a", work)).body == b"1"
    assert done == 1


async def test_a_claim_released_late_does_not_affect_the_next_ones_answer(tmp_path: Path) -> None:
    done = 0
    clock = Clock()

    async def work(_: Attempt) -> StoredResponse:
        nonlocal done
        done += 1
        return StoredResponse(200, (), b"%d" % done)

    async with process(tmp_path, clock, retry_s=0.3) as one:
        one.ledger.connections = ledger = LosesAnswers(tmp_path)
        ledger.open()
        ledger.lose = 2  # the confirmations of the claim and of its first release
        with pytest.raises(NotReady):
            await one.run_once(NAME, "a", work)
        await until(lambda: not ledger.lose)
        clock.now += 0.1
        assert (await one.run_once(NAME, "a", work)).body == b"1"
        await until(lambda: ledger.writes == 5)  # claim, release, claim, answer, and a second release
        assert (await one.run_once(NAME, "a", work)).body == b"1"
    assert done == 1


class CommitsLate(LosesAnswers):
    """A ledger whose first write is reported as failed, and is committed later, by `commit`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.hanging: list[Callable[[Transaction], Any]] = []

    def write(self, work: Callable[[Transaction], T], *, synced: bool = False) -> T:
        if not self.hanging:
            self.hanging.append(work)
            raise unavailable("the database answers nothing")
        return super().write(work, synced=synced)

    def commit(self) -> None:
        """Carry out the delayed write."""
        assert super().write(self.hanging[0]) == []


async def test_a_key_whose_claim_was_committed_after_its_release_is_free_for_its_process(tmp_path: Path) -> None:
    async def work(_: Attempt) -> StoredResponse:
        return StoredResponse(200, (), b"picture")

    async with process(tmp_path) as one:
        one.ledger.connections = ledger = CommitsLate(tmp_path)
        ledger.open()
        with pytest.raises(NotReady):
            await one.run_once(NAME, "a", work)
        await until(lambda: ledger.writes == 1)  # the release, which found no claim
        ledger.commit()
        assert (await asyncio.wait_for(one.run_once(NAME, "a", work), 5.0)).body == b"picture"


async def test_a_key_whose_claim_was_committed_after_its_release_is_free_for_others_soon(tmp_path: Path) -> None:
    async def work(_: Attempt) -> StoredResponse:
        return StoredResponse(200, (), b"picture")

    async def slow_work(attempt: Attempt) -> StoredResponse:
        await one.delete_expired()  # takes no key from a request that is being computed
        return await work(attempt)

    async with process(tmp_path) as one, process(tmp_path) as other:
        one.ledger.connections = ledger = CommitsLate(tmp_path)
        ledger.open()
        with pytest.raises(NotReady):
            await one.run_once(NAME, "a", work)
        await until(lambda: not one._background)  # the release has ended: the claim counts as forgotten from then on
        ledger.commit()
        await one.delete_expired()
        assert (await asyncio.wait_for(other.run_once(NAME, "a", work), 5.0)).body == b"picture"
        assert (await one.run_once("another", "a", slow_work)).body == b"picture"


async def test_a_slow_removal_of_an_answer_blocks_no_transaction(tmp_path: Path) -> None:
    async def work(_: Attempt) -> StoredResponse:
        return StoredResponse(200, (), b"picture")

    async with process(tmp_path) as local:
        bucket = HangingBucket(tmp_path)
        one = replace(local, responses=bucket)
        with pytest.raises(NotReady):
            await one.run_once(NAME, "a", work)
        assert await asyncio.to_thread(bucket.dropping.wait, 20)
        try:
            answer = await asyncio.wait_for(local.run_once("another", "a", work), 5.0)
        finally:
            bucket.go_on.set()
        assert answer.body == b"picture"


async def test_a_key_reused_while_its_expired_answer_is_removed_keeps_the_new_answer(tmp_path: Path) -> None:
    done = 0
    clock = Clock()
    committed, go_on = threading.Event(), threading.Event()

    async def work(_: Attempt) -> StoredResponse:
        nonlocal done
        done += 1
        return StoredResponse(200, (), b"%d" % done)

    def hold() -> None:
        committed.set()
        assert go_on.wait(20)

    async with process(tmp_path, clock) as one, process(tmp_path, clock) as other:
        await other.run_once(NAME, "a", work)
        clock.now += 61
        one.ledger.connections = ledger = LosesAnswers(tmp_path, hold)
        ledger.open()
        removing = asyncio.create_task(one.delete_expired())
        assert await asyncio.to_thread(committed.wait, 20)
        await other.run_once(NAME, "a", work)
        go_on.set()
        await removing
        assert (await other.run_once(NAME, "a", work)).body == b"2"
    assert done == 2


class PerClaim(LocalResponseFiles):
    """Responses in one file per claim, as all hosts' are in a bucket."""

    by_claim: ClassVar[bool] = True

    def _path(self, claim: Claim) -> Path:
        return super()._path(claim).with_name(f"{claim.name}-{claim.owner}-{claim.expires_at:.0f}")


@pytest.mark.parametrize("files", [LocalResponseFiles, PerClaim])
async def test_an_answer_stored_but_not_recorded_by_a_killed_process_is_removed(
    tmp_path: Path, files: type[LocalResponseFiles]
) -> None:
    """Both its file and the record of its result are removed: deleting that result leaves the next answer valid."""

    async def work(_: Attempt) -> StoredResponse:
        return StoredResponse(200, (), b"second", ("result2",))

    left = Claim(NAME, "a", "killed", 1e9)
    async with process(tmp_path) as local:
        one = replace(local, responses=files(tmp_path))
        await one.ledger.write(partial(idempotency_table.claim, wanted=left, now=0.0))
        await one.ledger.write(partial(idempotency_table.contain, claimed=left, result_ids=["result1"]))
        one.responses.keep(left, StoredResponse(200, (), b"first", ("result1",)))
        assert (await one.run_once(NAME, "a", work)).body == b"second"
        await until(lambda: len(kept(tmp_path)) == 1)
        await one.forget_result("result1")
        assert (await one.run_once(NAME, "a", work)).body == b"second"
        await one.close()


@pytest.mark.parametrize("files", [LocalResponseFiles, PerClaim])
async def test_an_expired_answer_is_removed_when_its_key_is_reused(
    tmp_path: Path, files: type[LocalResponseFiles]
) -> None:
    clock = Clock()

    async def work(_: Attempt) -> StoredResponse:
        return StoredResponse(200, (), b"at %d" % clock.now)

    async with process(tmp_path, clock) as local:
        one = replace(local, responses=files(tmp_path))
        await one.run_once(NAME, "a", work)
        clock.now += 61
        answer = await one.run_once(NAME, "a", work)
        await until(lambda: len(kept(tmp_path)) == 1)
        assert kept(tmp_path)[0].read_bytes().endswith(answer.body)
        await one.close()
