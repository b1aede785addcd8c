"""Idempotency keys: a key's request is computed once, and its answer is repeated by every process, also restarted."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from service.core.errors import Conflict, InvalidOption, NotReady
from service.core.order import Order
from service.core.schemas import InpaintOptions
from service.repeats.request_digests import fingerprint_of, key_name
from service.saving.local_disk.disk import Disk
from tests.fakes.clock import Clock
from tests.fakes.disk import FailingDisk
from tests.service.repeats.processes import kept, process
from tests.service.repeats.work import Work
from tests.serving.waiting import until

NAME = key_name("key", "someone", "inpaint")


class BlockedDisk(Disk):
    """A disk whose writes wait until the test releases them."""

    def __init__(self) -> None:
        self.writing, self.go_on = threading.Event(), threading.Event()

    def write_soon(self, path: Path | str, data: bytes) -> None:
        self.writing.set()
        assert self.go_on.wait(20)
        super().write_soon(path, data)


async def test_a_later_duplicate_gets_the_first_answer_again_even_after_a_restart(tmp_path: Path) -> None:
    work = Work()
    async with process(tmp_path) as one:
        first = await one.run_once(NAME, "a", work)
        again = await one.run_once(NAME, "a", work)
    async with process(tmp_path) as restarted:
        later = await restarted.run_once(NAME, "a", work)
    assert work.done == 1
    assert first.body == again.body == later.body
    assert "idempotency-replayed" not in dict(first.headers)
    for response in (again, later):
        assert (response.status, response.headers[-1]) == (200, ("idempotency-replayed", "true"))
        assert response.headers[:-1] == (("x-model", "photos/1"), ("content-type", "image/png"))


async def test_an_answer_that_cannot_be_read_now_is_not_computed_again(tmp_path: Path) -> None:
    work = Work()
    async with process(tmp_path) as one:
        first = await one.run_once(NAME, "a", work)
        (path,) = kept(tmp_path)
        content = path.read_bytes()
        path.unlink()
        path.mkdir()  # a folder, which not even root can read as a file
        with pytest.raises(NotReady, match="cannot be read now") as refused:
            await one.run_once(NAME, "a", work)
        assert refused.value.code == "storage_unavailable"
        path.rmdir()
        path.write_bytes(content)
        assert (await one.run_once(NAME, "a", work)).body == first.body
    assert work.done == 1


async def test_concurrent_duplicates_wait_for_the_first_in_any_process(tmp_path: Path) -> None:
    work = Work(blocked=True)
    async with process(tmp_path) as one, process(tmp_path) as other:
        first = asyncio.create_task(one.run_once(NAME, "a", work))
        await work.begun.wait()
        others = [asyncio.create_task(idempotency.run_once(NAME, "a", work)) for idempotency in (one, other, other)]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in others)
        work.gate.set()
        bodies = {bytes((await task).body) for task in (first, *others)}
    assert (work.done, len(bodies)) == (1, 1)


async def test_of_concurrent_duplicates_in_two_processes_one_does_the_work(tmp_path: Path) -> None:
    work = Work()
    async with process(tmp_path) as one, process(tmp_path) as other:
        answers = await asyncio.gather(*(idempotency.run_once(NAME, "a", work) for idempotency in (one, other) * 10))
    assert (work.done, len({bytes(answer.body) for answer in answers})) == (1, 1)


async def test_a_key_holds_for_one_request(tmp_path: Path) -> None:
    async with process(tmp_path) as one:
        await one.run_once(NAME, "a", Work())
        with pytest.raises(InvalidOption) as refused:
            await one.run_once(NAME, "b", Work())
        assert refused.value.code == "idempotency_mismatch"


async def test_the_key_of_a_dead_process_is_taken_over(tmp_path: Path) -> None:
    hanging = Work(blocked=True)
    async with process(tmp_path) as successor:
        async with process(tmp_path) as dying:
            unfinished = asyncio.create_task(dying.run_once(NAME, "a", hanging))
            await hanging.begun.wait()
        assert (await successor.run_once(NAME, "a", Work())).status == 200
        unfinished.cancel()
        with pytest.raises((asyncio.CancelledError, RuntimeError)):
            await unfinished


async def test_a_duplicate_gets_a_conflict_after_the_wait_and_the_answer_later(tmp_path: Path) -> None:
    clock, work = Clock(), Work(blocked=True)
    async with process(tmp_path, clock) as one:
        first = asyncio.create_task(one.run_once(NAME, "a", work))
        await work.begun.wait()
        waiting = asyncio.create_task(one.run_once(NAME, "a", work))
        await asyncio.sleep(0.05)
        clock.now += 31
        with pytest.raises(Conflict) as refused:
            await waiting
        assert (refused.value.status, refused.value.code) == (409, "idempotency_in_progress")
        work.gate.set()
        await first
        assert (await one.run_once(NAME, "a", work)).headers[-1] == ("idempotency-replayed", "true")


async def test_an_expired_key_is_free_and_its_answer_is_removed(tmp_path: Path) -> None:
    clock, work = Clock(), Work()
    async with process(tmp_path, clock) as one:
        await one.run_once(NAME, "a", work)
        clock.now += 61
        assert (await one.run_once(NAME, "b", work)).status == 200
        clock.now += 61
        await one.delete_expired()
        assert kept(tmp_path) == []
        await one.run_once(NAME, "a", work)
    assert work.done == 3


async def test_an_answer_whose_file_was_deleted_is_computed_again(tmp_path: Path) -> None:
    work = Work()
    async with process(tmp_path) as one:
        await one.run_once(NAME, "a", work)
        kept(tmp_path)[0].unlink()
        await one.run_once(NAME, "a", work)
    assert work.done == 2


@pytest.mark.parametrize("left", [-1, 20, 0])
async def test_an_answer_that_a_power_failure_cut_off_is_computed_again(tmp_path: Path, left: int) -> None:
    work = Work()
    async with process(tmp_path) as one:
        await one.run_once(NAME, "a", work)
        (path,) = kept(tmp_path)
        path.write_bytes(path.read_bytes()[:left])
        again = await one.run_once(NAME, "a", work)
    assert work.done == 2
    assert again.body.endswith(b"\n2")


async def test_an_answer_that_cannot_be_stored_is_refused_and_its_key_released(tmp_path: Path) -> None:
    disk, work = FailingDisk(), Work()
    async with process(tmp_path, disk=disk) as one:
        for at in (("write_soon",), ("rename",)):
            disk.fail(errno.ENOSPC, at)
            with pytest.raises(NotReady) as refused:
                await one.run_once(NAME, "a", work)
            assert refused.value.code == "storage_unavailable"
            assert kept(tmp_path) == []
            await until(lambda: not one._background)
            disk.mend()
            assert one.disk.probe_if_suspected()
        response = await one.run_once(NAME, "a", work)
        again = await one.run_once(NAME, "a", work)
        assert again.body == response.body
        assert work.done == 3


async def test_a_repeat_gets_the_answer_that_was_being_stored_at_the_disconnect(
    tmp_path: Path,
) -> None:
    disk, work = BlockedDisk(), Work()
    async with process(tmp_path, disk=disk) as one:
        left = asyncio.create_task(one.run_once(NAME, "a", work))
        assert await asyncio.to_thread(disk.writing.wait, 20)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        again = asyncio.create_task(one.run_once(NAME, "a", work))
        await asyncio.sleep(0.05)
        disk.go_on.set()
        assert (await again).headers[-1] == ("idempotency-replayed", "true")
    assert work.done == 1


async def test_while_the_disk_fails_no_key_is_claimed_but_stored_answers_are_returned(tmp_path: Path) -> None:
    work = Work()
    async with process(tmp_path) as one:
        await one.run_once(NAME, "a", work)
        one.disk.record_failure(OSError(errno.EROFS, "Read-only file system"))
        assert (await one.run_once(NAME, "a", work)).headers[-1] == ("idempotency-replayed", "true")
        with pytest.raises(NotReady) as refused:
            await one.run_once("another", "a", work)
        assert refused.value.code == "storage_unavailable"
    assert work.done == 1


def test_each_client_has_keys_of_its_own_for_each_endpoint() -> None:
    assert key_name('"key"', "someone", "inpaint") == NAME
    others = {key_name("key", "another", "inpaint"), key_name("key", "someone", "translate"), NAME}
    assert len(others) == 3


@pytest.mark.parametrize("key", ["", '""', "x" * 256, "two words", '"open'])
def test_a_malformed_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidOption, match="UUID"):
        key_name(key, "someone", "inpaint")


def test_a_fingerprint_covers_files_their_names_options_and_headers() -> None:
    options = InpaintOptions.model_validate({})
    order = Order("inpaint", {"image": b"ab", "mask": b"c"}, options)
    prints = {
        fingerprint_of(order),
        fingerprint_of(order, "application/json"),
        fingerprint_of(Order("inpaint", {"image": b"a", "mask": b"bc"}, options)),
        fingerprint_of(Order("inpaint", {"image": b"c", "mask": b"ab"}, options)),
        fingerprint_of(Order("inpaint", order.files, options.model_copy(update={"quality": 5}))),
    }
    assert len(prints) == 5
    assert fingerprint_of(Order("inpaint", {"mask": b"c", "image": b"ab"}, options)) in prints
