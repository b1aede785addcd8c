"""Deletion by owners, and the clean-up that follows later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.core.errors import Gone, NotFound, NotReady
from service.gallery.deletion import Deletion
from service.gallery.thumbnails import ThumbnailFiles
from service.saving import index_table
from service.saving.results import StoredResult
from service.saving.spool.process_folder import SPOOL
from service.saving.store import ResultStore
from tests.fakes.captured_logs import capture_logs
from tests.service.saving.saver import OWNER, body_of, deletion_of, store_of

ID, OTHER = "1" * 32, "2" * 32
DAY_S = 86_400.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with store_of(tmp_path, "") as one:
        yield one


def put(store: ResultStore, result_id: str, owner: str = OWNER) -> None:
    body = body_of(result_id)
    store.put(store.reserve(len(body)), StoredResult(result_id, body, "image/png", {"owner": owner}))


def kept_thumbnails(root: Path) -> list[str]:
    return sorted(path.name for path in (root / ".thumbnails").rglob("*") if path.is_file())


async def test_only_the_owner_deletes_a_result_and_only_once(store: ResultStore, tmp_path: Path) -> None:
    put(store, ID)
    deletion = deletion_of(store, tmp_path)
    for stranger in ("", "00000000"):
        with pytest.raises(NotFound):
            await deletion.delete(ID, stranger)
    assert store.get(ID) is not None
    assert await deletion.delete(ID, OWNER)
    with pytest.raises(Gone):
        await deletion.delete(ID, OWNER)
    with pytest.raises(NotFound):
        await deletion.delete(ID, "00000000")


@pytest.mark.parametrize("nothing", [OTHER, "..%2Fetc", ""])
async def test_a_result_that_does_not_exist_cannot_be_deleted(store: ResultStore, tmp_path: Path, nothing: str) -> None:
    with pytest.raises(NotFound):
        await deletion_of(store, tmp_path).delete(nothing, "")


async def test_two_deletions_of_one_result_at_once_succeed_once(store: ResultStore, tmp_path: Path) -> None:
    put(store, ID)
    deletion = deletion_of(store, tmp_path)
    outcomes = await asyncio.gather(*(deletion.delete(ID, OWNER) for _ in range(5)), return_exceptions=True)
    assert [outcome for outcome in outcomes if outcome is True] == [True]
    assert sum(isinstance(outcome, Gone) for outcome in outcomes) == 4


async def test_a_result_that_is_not_in_the_index_is_deleted_by_its_sidecar(store: ResultStore, tmp_path: Path) -> None:
    put(store, ID)
    store.flush(30)
    store.index.forget([ID])
    deletion = deletion_of(store, tmp_path)
    with pytest.raises(NotFound):
        await deletion.delete(ID, "")
    assert await deletion.delete(ID, OWNER)
    assert store.get(ID) is None


async def test_removing_copies_is_retried_after_a_failure(store: ResultStore, tmp_path: Path) -> None:
    asked: list[str] = []

    async def forget(result_id: str) -> None:
        asked.append(result_id)
        if len(asked) == 1:
            raise NotReady("the ledger is busy")

    put(store, ID)
    files = ThumbnailFiles(tmp_path, store.index)
    deletion = Deletion(store, files, (forget,), lambda: time.time() + 3600, 0.0)
    with capture_logs() as lines:
        assert not await deletion.delete(ID, OWNER)
    assert [line["log_level"] for line in lines] == ["info", "warning"]
    await deletion.finish()
    await deletion.finish()
    await deletion.finish()
    assert (asked, deletion.left) == ([ID] * 3, 0), "once more at the end, for writes that were late"


async def test_the_request_itself_has_some_time_to_remove_the_copies(store: ResultStore, tmp_path: Path) -> None:
    put(store, ID)
    store.flush(30)
    store.index.bury(ID, OWNER)
    await deletion_of(store, tmp_path).finish()
    assert store.storage.read(ID) is not None
    await deletion_of(store, tmp_path, later_s=10.0).finish()
    assert store.storage.read(ID) is None


async def test_copies_do_not_wait_until_a_clock_that_was_set_back_shows_the_time_of_the_deletion_again(
    store: ResultStore, tmp_path: Path
) -> None:
    put(store, ID)
    store.flush(30)
    store.index.write(lambda ledger: index_table.bury(ledger, ID, OWNER, time.time() + DAY_S))
    assert store.storage.read(ID) is not None, "its process was killed before it removed the copies"
    await deletion_of(store, tmp_path).finish()
    assert store.storage.read(ID) is not None, "the request itself has some time to remove them"
    await deletion_of(store, tmp_path, later_s=10.0).finish()
    assert store.storage.read(ID) is None
    assert store.index.deleted([ID]) == {ID}


async def test_thumbnails_of_lost_results_and_old_tombstones_are_removed(store: ResultStore, tmp_path: Path) -> None:
    for result_id in (ID, OTHER):
        put(store, result_id)
        ThumbnailFiles(tmp_path, store.index).keep(result_id, b"small")
    store.flush(30)
    await deletion_of(store, tmp_path).delete(ID, OWNER)
    assert kept_thumbnails(tmp_path) == [f"{OTHER}.webp"], "that of a deleted result goes with it"
    store.index.forget([OTHER])  # as retention does
    later = deletion_of(store, tmp_path, later_s=89 * DAY_S)
    await later.finish()
    await later.tidy()
    assert kept_thumbnails(tmp_path) == []
    assert store.index.deleted([ID]) == {ID}
    await deletion_of(store, tmp_path, later_s=91 * DAY_S).tidy()
    assert store.index.deleted([ID]) == set()


async def test_a_damaged_spool_keeps_no_other_copies_of_a_deleted_result(store: ResultStore, tmp_path: Path) -> None:
    put(store, ID)
    store.flush(30)
    ThumbnailFiles(tmp_path, store.index).keep(ID, b"small")
    asked: list[str] = []

    async def forget(result_id: str) -> None:
        asked.append(result_id)

    (tmp_path / SPOOL / "dead" / "1.log").mkdir(parents=True)  # as unreadable as a damaged file
    deletion = deletion_of(store, tmp_path, later_s=10.0)
    deletion.forget = (forget,)
    assert not await deletion.delete(ID, OWNER)
    assert (kept_thumbnails(tmp_path), store.storage.read(ID), asked) == ([], None, [ID])
    await deletion.finish()
    assert deletion.left == 1, "the damaged file may have a copy"


async def test_a_result_of_which_a_copy_cannot_be_removed_keeps_no_other_waiting(
    store: ResultStore, tmp_path: Path
) -> None:
    ids = [f"{number:032x}" for number in range(1, 6)]
    for result_id in ids:
        put(store, result_id)
    store.flush(30)
    for result_id in ids:
        store.index.bury(result_id, OWNER)  # by processes that were killed before they removed the copies
    for result_id in ids[:2]:
        image = tmp_path / f"{result_id[:2]}/{result_id}.png"
        image.unlink()
        image.mkdir()  # which the server does not remove
    deletion = deletion_of(store, tmp_path, later_s=3600)
    for _ in range(4):
        await deletion.finish()
    assert [one for one in ids if store.storage.read_sidecar(one) is not None] == []
    assert deletion.left == 2
    for result_id in ids[1::-1]:  # one after the other, the one that is tried last first
        (tmp_path / f"{result_id[:2]}/{result_id}.png").rmdir()
        for _ in range(2):
            await deletion.finish()
        assert deletion.left == ids.index(result_id)
