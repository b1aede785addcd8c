"""Kept answers that contain a deleted result are not given again."""

from __future__ import annotations

import errno
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from service.core.errors import Gone
from service.repeats.attempt import Attempt
from service.repeats.response_files import StoredResponse
from tests.fakes.clock import Clock
from tests.fakes.disk import WRITES, FailingDisk
from tests.service.repeats.processes import kept, process


class Deletions:
    """A stand-in for the index of results that knows which are deleted."""

    def __init__(self) -> None:
        self.ids: set[str] = set()

    def __call__(self, result_ids: Collection[str]) -> set[str]:
        return self.ids & set(result_ids)


async def with_result(_: Attempt) -> StoredResponse:
    return StoredResponse(200, (("location", "/v1/results/one"),), b"picture", ("one",))


async def test_an_answer_with_a_deleted_result_is_removed_and_its_key_raises_gone(tmp_path: Path) -> None:
    deletions = Deletions()
    async with process(tmp_path) as plain:
        idempotency = replace(plain, deleted=deletions)
        assert (await idempotency.run_once("name", "print", with_result)).body == b"picture"
        assert (await idempotency.run_once("name", "print", with_result)).body == b"picture"
        deletions.ids.add("one")
        await idempotency.forget_result("one")
        await idempotency.forget_result("another")
        with pytest.raises(Gone, match="deleted"):
            await idempotency.run_once("name", "print", with_result)
        assert not any(b"picture" in path.read_bytes() for path in kept(tmp_path))


async def test_an_answer_whose_result_is_deleted_while_it_is_made_is_not_kept(tmp_path: Path) -> None:
    deletions = Deletions()

    async def deleted_meanwhile(attempt: Attempt) -> StoredResponse:
        deletions.ids.add("one")  # deleted before the answer is kept, when `forget_result` finds no answer yet
        return await with_result(attempt)

    async with process(tmp_path) as plain:
        idempotency = replace(plain, deleted=deletions)
        assert (await idempotency.run_once("name", "print", deleted_meanwhile)).body == b"picture", (
            "it was asked for before"
        )
        assert not any(b"picture" in path.read_bytes() for path in kept(tmp_path))
        with pytest.raises(Gone):
            await idempotency.run_once("name", "print", with_result)


async def test_a_full_disk_does_not_prevent_the_removal_of_a_deleted_result(tmp_path: Path) -> None:
    disk = FailingDisk()
    async with process(tmp_path, disk=disk) as idempotency:
        await idempotency.run_once("name", "print", with_result)
        disk.fail(errno.ENOSPC, WRITES)
        await idempotency.forget_result("one")
        assert kept(tmp_path) == []


@pytest.mark.parametrize("how", ["deleted", "expired"])
async def test_unfinished_files_of_a_killed_process_are_removed_with_the_answer(tmp_path: Path, how: str) -> None:
    clock = Clock()
    async with process(tmp_path, clock) as idempotency:
        await idempotency.run_once("name", "print", with_result)
        (answer,) = kept(tmp_path)
        answer.rename(answer.with_suffix(".new"))  # as if the process was killed before the rename
        if how == "deleted":
            await idempotency.forget_result("one")
        else:
            clock.now += 61
            await idempotency.delete_expired()
        assert kept(tmp_path) == []
