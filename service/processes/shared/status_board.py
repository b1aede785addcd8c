"""Memory that all processes see: how much each has in hand, that it is alive, and who was told to come back when.

Each row has one writer, and eight bytes that are aligned are written and read whole, so that nothing is locked.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass

from service.processes.shared import retry_book
from service.processes.shared.retry_book import SharedBook

_COLUMNS = 5
_INSIDE, _LOAD, _BEAT, _READY, _BEGUN = range(_COLUMNS)


@dataclass(frozen=True, slots=True)
class Places:
    """Which rows there are."""

    front_ends: int
    engines: int

    @property
    def nbytes(self) -> int:
        return self.rows_nbytes + retry_book.nbytes(self.front_ends)

    @property
    def rows_nbytes(self) -> int:
        """How much of it the rows take."""
        return (self.front_ends + self.engines) * _COLUMNS * 8


def make_board(places: Places) -> int:
    """A descriptor of an empty board, for all processes to inherit."""
    descriptor = os.memfd_create("retouch-board")
    os.ftruncate(descriptor, places.nbytes)
    return descriptor


class Board:
    """The memory, mapped.

    Args:
        descriptor: from `make_board`.
        places: as for `make_board`.
    """

    def __init__(self, descriptor: int, places: Places) -> None:
        self._places = places
        memory = memoryview(mmap.mmap(descriptor, places.nbytes))
        self._cells: memoryview[float] = memory[: places.rows_nbytes].cast("d")
        self._book = memory[places.rows_nbytes :]

    def front_end(self, index: int) -> Row:
        """The row of a front end."""
        return Row(self._cells[index * _COLUMNS : (index + 1) * _COLUMNS])

    def engine(self, index: int) -> Row:
        """The row of an engine process."""
        return self.front_end(self._places.front_ends + index)

    def book(self, index: int) -> SharedBook:
        """The appointments, as that front end reads and writes them."""
        return SharedBook(self._book, index)

    def inside_elsewhere(self, index: int) -> int:
        """Requests in the house of all front ends but that one."""
        everyone = range(self._places.front_ends)
        return int(sum(self._cells[other * _COLUMNS + _INSIDE] for other in everyone if other != index))

    @property
    def engines_ready(self) -> int:
        """Engine processes that work."""
        return sum(self.engine(index).ready for index in range(self._places.engines))


class Row:
    """What one process says of itself."""

    def __init__(self, cells: memoryview[float]) -> None:
        self._cells = cells

    @property
    def in_flight(self) -> int:
        """Of a front end: requests in its house."""
        return int(self._cells[_INSIDE])

    @in_flight.setter
    def in_flight(self, count: int) -> None:
        self._cells[_INSIDE] = count

    @property
    def load(self) -> int:
        """Of an engine process: samples that it has not answered."""
        return int(self._cells[_LOAD])

    @load.setter
    def load(self, count: int) -> None:
        self._cells[_LOAD] = count

    @property
    def beat_at(self) -> float:
        """When its event loop last turned, on the monotonic clock; 0 before it began."""
        return float(self._cells[_BEAT])

    @beat_at.setter
    def beat_at(self, now: float) -> None:
        self._cells[_BEAT] = now

    @property
    def ready(self) -> bool:
        """Whether it takes work."""
        return bool(self._cells[_READY])

    @ready.setter
    def ready(self, ready: bool) -> None:
        self._cells[_READY] = ready

    def begin(self, now: float) -> bool:
        """A process takes this place; whether another had it before."""
        self.clear()
        self.beat_at = now
        before, self._cells[_BEGUN] = self._cells[_BEGUN], 1.0
        return bool(before)

    def clear(self) -> None:
        """It is gone. That there was one stays."""
        for column in (_INSIDE, _LOAD, _BEAT, _READY):
            self._cells[column] = 0.0
