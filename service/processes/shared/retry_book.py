"""The appointments of all front ends in memory that they share: key was refused by one is known to each of them.

A front end adds to pages of its own and all strike out on all, without locks: cells of eight bytes are aligned, and are
written and read whole. Two that strike out the same at once both believe that they did, and two let in where one was
promised; an entry that finds no cell free takes the place of the soonest. What a front end wrote outlives it.

Pages of one front end, in cells: for each second when it was, how many are still to come; for each second when it was,
how many came here key had been told so elsewhere; and entries, by the hash of key is meant, with when.
"""

from __future__ import annotations

from collections.abc import Hashable
from hashlib import blake2b

_SECONDS = 512
"""Longer than anybody is told to wait, with the time that they are waited for."""
_ENTRIES = 1 << 17
_WAYS = 4
"""Neighbouring entries that one hash may be kept in."""
_COUNTS = 2 * _SECONDS
_CELLS = 2 * _COUNTS + 2 * _ENTRIES

Place = tuple[memoryview, int]
"""An entry: a front end's entries, and the cell in which it begins."""


def nbytes(front_ends: int) -> int:
    """Of the memory that a book takes: 2 MiB for each front end; what is never written takes none."""
    return front_ends * _CELLS * 8


class SharedBook:
    """See `service.appointment_book.RetryBook`. Used on the event loop of one front end.

    Args:
        memory: `nbytes(front_ends)` of it, zeros at first, the same in all of them.
        index: of this front end.
    """

    def __init__(self, memory: memoryview, index: int) -> None:
        cells = memory.cast("Q")
        pages = [cells[start : start + _CELLS] for start in range(0, len(cells), _CELLS)]
        self._to_come = [_Counts(page[:_COUNTS]) for page in pages]
        self._came = [_Counts(page[_COUNTS : 2 * _COUNTS]) for page in pages]
        self._entries = [page[2 * _COUNTS :] for page in pages]
        self._index = index
        self._added: dict[Hashable, int] = {}
        """By this front end, and not struck out by it."""

    def add(self, key: Hashable, due: int) -> None:
        """As `RetryBook.add`."""
        self._added[key] = due
        self._to_come[self._index].add(due, 1)
        entries, mark = self._entries[self._index], _mark(key)
        cell = min(_cells_of(mark), key=lambda cell: entries[cell + 1])
        entries[cell + 1], entries[cell] = due, mark

    def due(self, key: Hashable) -> int | None:
        """As `RetryBook.due`."""
        return None if (place := self._find(key)) is None else place[0][place[1] + 1]

    def remove(self, key: Hashable) -> None:
        """As `RetryBook.take`."""
        if (place := self._find(key)) is None:  # somebody else was quicker
            return
        entries, cell = place
        due = entries[cell + 1]
        entries[cell] = entries[cell + 1] = 0
        if self._added.pop(key, None) is not None:
            self._to_come[self._index].add(due, -1)
        else:
            self._came[self._index].add(due, 1)

    def expected(self, second: int) -> int:
        """As `RetryBook.expected`."""
        to_come = sum(counts.at(second) for counts in self._to_come)
        return max(0, to_come - sum(counts.at(second) for counts in self._came))

    def expire(self, before: int) -> int:
        """As `RetryBook.forget`, of those that this front end added."""
        late = [key for key, due in self._added.items() if due < before]
        missed = 0
        for key in late:
            del self._added[key]
            if (place := self._find(key)) is not None:
                entries, cell = place
                entries[cell] = entries[cell + 1] = 0
                missed += 1
        return missed

    def _find(self, key: Hashable) -> Place | None:
        mark = _mark(key)
        for entries in self._entries:
            for cell in _cells_of(mark):
                if entries[cell] == mark:
                    return entries, cell
        return None


class _Counts:
    """A count for each of the last and next seconds. One front end writes it."""

    def __init__(self, cells: memoryview) -> None:
        self._cells = cells

    def at(self, second: int) -> int:
        cell = second % _SECONDS * 2
        return int(self._cells[cell + 1]) if self._cells[cell] == second else 0

    def add(self, second: int, change: int) -> None:
        cell = second % _SECONDS * 2
        count = max(0, self.at(second) + change)
        self._cells[cell + 1] = count
        self._cells[cell] = second


def _mark(key: Hashable) -> int:
    """Of 64 bits, the same in every process; never 0, which means that an entry is free."""
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=8).digest(), "little") or 1


def _cells_of(mark: int) -> range:
    first = mark % (_ENTRIES // _WAYS) * _WAYS * 2
    return range(first, first + _WAYS * 2, 2)
