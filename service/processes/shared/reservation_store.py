"""Reservations in shared memory, so that a client may return to any front end.

Each front end adds reservations to its own page; all may remove them from every page. No locks are used: aligned cells
of eight bytes are written and read atomically. If two front ends remove the same reservation at once, both admit the
client. If there is no free cell for a new entry, it replaces the one that is due first. The memory outlives a front
end.

A page has, in cells: for each second, the number of open reservations; for each second, the number of reservations that
this front end redeemed but another one made; and a hash table of entries (hash of the key, second).
"""

from __future__ import annotations

from collections.abc import Hashable
from hashlib import blake2b

_SECONDS = 512
"""Number of seconds with counts; longer than the longest Retry-After plus the time until a reservation expires."""
_ENTRIES = 1 << 17
_WAYS = 4
"""Number of neighbouring entries in which a hash may be stored (set-associative table)."""
_COUNTS = 2 * _SECONDS
_CELLS = 2 * _COUNTS + 2 * _ENTRIES

EntryPosition = tuple[memoryview, int]
"""Position of an entry: the entries of a front end's page, and the index of its first cell."""


def memory_nbytes(front_ends: int) -> int:
    """Return the size of the memory in bytes: 2 MiB for each front end, of which unwritten pages take no memory."""
    return front_ends * _CELLS * 8


class SharedReservationStore:
    """Reservations shared by all front ends; see `ReservationStore`. Used on the event loop of one front end.

    Args:
        memory: `memory_nbytes(front_ends)` bytes, initially zero, shared by all front ends.
        index: index of this front end.
    """

    def __init__(self, memory: memoryview, index: int) -> None:
        cells = memory.cast("Q")
        pages = [cells[start : start + _CELLS] for start in range(0, len(cells), _CELLS)]
        self._open_counts = [_CountsPerSecond(page[:_COUNTS]) for page in pages]
        self._redeemed_counts = [_CountsPerSecond(page[_COUNTS : 2 * _COUNTS]) for page in pages]
        self._entries = [page[2 * _COUNTS :] for page in pages]
        self._index = index
        self._added: dict[Hashable, int] = {}
        """Reservations that this front end has added and not removed: their seconds, by key."""

    def add(self, key: Hashable, due: int) -> None:
        """See `ReservationStore.add`."""
        self._added[key] = due
        self._open_counts[self._index].add_to_count(due, 1)
        entries, key_hash = self._entries[self._index], _key_hash(key)
        cell = min(_entry_cells(key_hash), key=lambda cell: entries[cell + 1])
        entries[cell + 1], entries[cell] = due, key_hash

    def due_second(self, key: Hashable) -> int | None:
        """See `ReservationStore.due_second`."""
        return None if (entry := self._find(key)) is None else entry[0][entry[1] + 1]

    def remove(self, key: Hashable) -> None:
        """See `ReservationStore.remove`."""
        if (entry := self._find(key)) is None:  # another front end has removed it just now
            return
        entries, cell = entry
        due = entries[cell + 1]
        entries[cell] = entries[cell + 1] = 0
        if self._added.pop(key, None) is not None:
            self._open_counts[self._index].add_to_count(due, -1)
        else:
            self._redeemed_counts[self._index].add_to_count(due, 1)

    def expected_in_second(self, second: int) -> int:
        """See `ReservationStore.expected_in_second`."""
        count = 0
        for opened, redeemed in zip(self._open_counts, self._redeemed_counts, strict=True):
            count += opened.count_at(second) - redeemed.count_at(second)
        return max(0, count)

    def expire(self, before: int) -> int:
        """See `ReservationStore.expire`; expires only reservations that this front end has added."""
        late = [key for key, due in self._added.items() if due < before]
        missed = 0
        for key in late:
            del self._added[key]
            if (entry := self._find(key)) is not None:
                entries, cell = entry
                entries[cell] = entries[cell + 1] = 0
                missed += 1
        return missed

    def _find(self, key: Hashable) -> EntryPosition | None:
        key_hash = _key_hash(key)
        for entries in self._entries:
            for cell in _entry_cells(key_hash):
                if entries[cell] == key_hash:
                    return entries, cell
        return None


class _CountsPerSecond:
    """A ring of counts, one for each second; written by one front end."""

    def __init__(self, cells: memoryview) -> None:
        self._cells = cells

    def count_at(self, second: int) -> int:
        cell = second % _SECONDS * 2
        return int(self._cells[cell + 1]) if self._cells[cell] == second else 0

    def add_to_count(self, second: int, change: int) -> None:
        cell = second % _SECONDS * 2
        count = max(0, self.count_at(second) + change)
        self._cells[cell + 1] = count
        self._cells[cell] = second


def _key_hash(key: Hashable) -> int:
    """Return a 64-bit hash that is the same in every process; never 0, which marks a free entry."""
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=8).digest(), "little") or 1


def _entry_cells(key_hash: int) -> range:
    first = key_hash % (_ENTRIES // _WAYS) * _WAYS * 2
    return range(first, first + _WAYS * 2, 2)
