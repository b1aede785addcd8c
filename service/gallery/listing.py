"""Lists of the results of one owner, newest first, a page at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from service.gallery import cursor
from service.gallery.cursor import Position
from service.ledger.contract import Transaction
from service.saving.index import ResultIndex
from service.saving.index_table import ResultRow, row_from

Status = Literal["saving", "saved"]
_SAVED: dict[Status, str] = {"saving": "saved = 0", "saved": "saved = 1"}
"""SQL conditions with literals, because with parameters the partial index of results in the spool is not used."""


@dataclass(frozen=True, slots=True)
class ListQuery:
    """A page of a list.

    owner: owner of the results; empty: results without an owner.
    model: `name` or `name/version`.
    created_from, created_before: seconds since the epoch.
    status: `saving`: promised, and not yet in its final place; `saved`: in its final place.
    """

    owner: str
    limit: int
    model: str | None = None
    created_from: float | None = None
    created_before: float | None = None
    status: Status | None = None
    cursor: str | None = None

    @property
    def binding(self) -> list[object]:
        """The part of the query that a cursor is bound to: all but the position and the length of the page."""
        return [self.owner, self.model, self.created_from, self.created_before, self.status]

    def condition(self) -> tuple[str, list[object]]:
        """The SQL condition and its values.

        Raises:
            InvalidOption: code `cursor_invalid`.
        """
        position = None if self.cursor is None else cursor.decode(self.cursor, self.binding)
        choices: list[tuple[str, object]] = [("owner = ?", self.owner)]
        if self.model is not None:
            name = f"{self.model}/"
            of_name = (f"substr(model, 1, {len(name)}) = ?", name)
            choices.append(("model = ?", self.model) if "/" in self.model else of_name)
        if self.created_from is not None:
            choices.append(("created_at >= ?", self.created_from))
        if self.created_before is not None:
            choices.append(("created_at < ?", self.created_before))
        conditions, values = [condition for condition, _ in choices], [value for _, value in choices]
        if self.status is not None:
            conditions.append(_SAVED[self.status])
        if position is not None:
            conditions.append("(created_at, id) < (?, ?)")
            values += position
        return " AND ".join(conditions), values


class ResultPage(NamedTuple):
    """Results of a list, and the cursor of the next page; None if this is the last."""

    rows: list[ResultRow]
    next_cursor: str | None


def find_page(ledger: Transaction, query: ListQuery) -> ResultPage:
    """Read a page. Raises as `ListQuery.condition`."""
    condition, values = query.condition()
    found = ledger.execute(
        f"SELECT * FROM results WHERE deleted_at IS NULL AND {condition} ORDER BY created_at DESC, id DESC LIMIT ?",  # noqa: S608 -- values are bound
        [*values, query.limit + 1],
    ).fetchall()
    rows = [row_from(row) for row in found[: query.limit]]
    more = len(found) > query.limit
    last = Position(rows[-1].created_at, rows[-1].id) if more else None
    return ResultPage(rows, cursor.encode(last, query.binding) if last else None)


class Listing:
    """Lists of results, read over connections of their own: a long list delays no writer. Used on the event loop."""

    def __init__(self, index: ResultIndex) -> None:
        self._index = index
        self._connections = index.connections.separate()

    def open(self) -> None:
        """Open the connections. Raises as `Connections.open`."""
        self._connections.open()

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    async def page(self, query: ListQuery) -> ResultPage:
        """Return a page with all results that this process has promised; those of others appear within 0.3 s.

        Raises:
            InvalidOption: code `cursor_invalid`.
            NotReady: code `ledger_unavailable`.
        """
        return await asyncio.to_thread(self._read, query)

    def _read(self, query: ListQuery) -> ResultPage:
        if self._index.pending:
            self._index.flush()
        return self._connections.read(partial(find_page, query=query))
