"""Lists of results: order, owner, filters, and results with equal times."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from service.gallery.listing import Listing, ListQuery
from service.ledger.contract import Transaction
from service.ledger.sqlite_file import LEDGER_FILE, SqliteFile
from service.saving import index_table
from service.saving.index import ResultIndex

T = TypeVar("T")


class SlowLedger(SqliteFile):
    """A ledger whose writes begin and then wait until `go_on` is set."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / LEDGER_FILE, [index_table.SCHEMA])
        self.begun, self.go_on = threading.Event(), threading.Event()

    def write(self, work: Callable[[Transaction], T], *, synced: bool = False) -> T:
        self.begun.set()
        assert self.go_on.wait(20)
        return super().write(work, synced=synced)


@pytest.fixture
def listing(index: ResultIndex) -> Iterator[Listing]:
    one = Listing(index)
    one.open()
    yield one
    one.close()


def sidecar(number: int, **fields: Any) -> dict[str, Any]:
    made = f"2026-11-23T07:00:{number:02}.000+00:00"
    return {"id": f"{number:032x}", "owner": "a", "created": made, "model": "photos/1", **fields}


async def numbers(listing: Listing, **fields: Any) -> list[int]:
    page = await listing.page(ListQuery(**{"owner": "a", "limit": 100, **fields}))
    return [int(row.id, 16) for row in page.rows]


async def test_the_newest_is_first_and_every_owner_has_a_list_of_their_own(
    index: ResultIndex, listing: Listing
) -> None:
    index.saved([sidecar(1), sidecar(3), sidecar(2), sidecar(4, owner="b"), sidecar(5, owner="")])
    assert await numbers(listing) == [3, 2, 1]
    assert await numbers(listing, owner="b") == [4]
    assert await numbers(listing, owner="") == [5]
    assert await numbers(listing, owner="c") == []


async def test_a_result_is_listed_as_soon_as_it_is_promised(index: ResultIndex, listing: Listing) -> None:
    index.announce(sidecar(1))
    assert await numbers(listing, status="saving") == [1]
    assert await numbers(listing, status="saved") == []


async def test_a_result_being_inserted_by_another_thread_is_listed(tmp_path: Path) -> None:
    index = ResultIndex(ledger := SlowLedger(tmp_path), lambda: 0.0)
    index.open()
    listing = Listing(index)
    listing.open()
    index.announce(sidecar(1))
    entering = asyncio.create_task(asyncio.to_thread(index.flush))
    await asyncio.to_thread(ledger.begun.wait, 20)
    listed = asyncio.create_task(numbers(listing))
    done, _ = await asyncio.wait([listed], timeout=0.05)
    assert not done, "a list is read once the result is in the table"
    ledger.go_on.set()
    assert await listed == [1]
    await entering
    listing.close()
    index.close()


async def test_results_with_equal_times_are_each_listed_once(index: ResultIndex, listing: Listing) -> None:
    moment = "2026-11-23T07:00:00.000+00:00"
    index.saved([sidecar(number, created=moment) for number in range(10)])
    seen: list[int] = []
    cursor = None
    while True:
        page = await listing.page(ListQuery("a", 3, cursor=cursor))
        seen += [int(row.id, 16) for row in page.rows]
        if (cursor := page.next_cursor) is None:
            break
    assert seen == list(range(9, -1, -1))


async def test_a_model_is_found_by_its_name_alone_and_by_its_version(index: ResultIndex, listing: Listing) -> None:
    models = ("photos/1", "photos/2", "photos_2/1", "photosx/1")
    index.saved([sidecar(number, model=model) for number, model in enumerate(models)])
    assert await numbers(listing, model="photos") == [1, 0]
    assert await numbers(listing, model="photos/2") == [1]
    assert await numbers(listing, model="photos_2") == [2]


async def test_deleted_results_are_not_listed(index: ResultIndex, listing: Listing) -> None:
    index.saved([sidecar(1), sidecar(2)])
    index.bury(f"{2:032x}", "a")
    assert await numbers(listing) == [1]
