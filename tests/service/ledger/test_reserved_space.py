"""Space that the ledger keeps for deletions on a full disk."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from service.core.errors import NotReady
from service.ledger.reserved_space import ReservedSpace
from service.ledger.sqlite_file import SqliteFile
from service.saving import index_table
from service.saving.index import ResultIndex, ledger_file
from service.saving.index_table import row_of
from tests.fakes.disk import fill, tmpfs

pytestmark = pytest.mark.slow

RESULTS = [f"{number:032x}" for number in range(400)]


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    with tmpfs(tmp_path / "small", "3m") as folder:
        yield folder


@pytest.fixture
def ledger(small: Path) -> Iterator[SqliteFile]:
    one = ledger_file(small)
    one.open()
    one.restore_reserve()
    yield one
    one.close()


def test_on_a_full_disk_removals_are_written_and_nothing_else(small: Path, ledger: SqliteFile) -> None:
    index = ResultIndex(ledger, lambda: 1000.0)
    for start in range(0, len(RESULTS), 50):
        index.saved([{"id": result_id, "owner": "me"} for result_id in RESULTS[start : start + 50]])
    ledger.restore_reserve()  # as every second
    fill(small)
    more = [row_of({"id": f"{number:032x}"}, saved=True) for number in range(1_000, 20_000)]
    with pytest.raises(NotReady, match="full"):
        index.write(partial(index_table.enter, rows=more))
    assert all(index.bury(result_id, "me") for result_id in RESULTS[:200])
    index.forget(RESULTS[200:])
    assert index.deleted(RESULTS) == set(RESULTS[:200])
    assert index.read(partial(index_table.known, result_ids=RESULTS)) == set()


def test_the_space_is_reserved_again_as_soon_as_the_disk_has_room(small: Path, ledger: SqliteFile) -> None:
    reserve = small / ".ledger.reserve"
    size = reserve.stat().st_size
    filler = fill(small)
    ReservedSpace(reserve).release()
    ledger.restore_reserve()
    assert not reserve.exists()
    filler.unlink()
    ledger.restore_reserve()
    assert reserve.stat().st_size == size


def test_space_that_cannot_be_reserved_is_no_error(tmp_path: Path) -> None:
    space = ReservedSpace(tmp_path / "missing" / "reserve")
    space.restore()
    space.release()
    assert not (tmp_path / "missing").exists()
