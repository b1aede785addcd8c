"""Status board: memory shared by all processes, with the load and heartbeat of each process, and the reservations.

No locks are needed: each row has a single writer, and aligned cells of eight bytes are written and read atomically.
"""

from __future__ import annotations

import mmap
import os
from collections import Counter
from dataclasses import dataclass

from service.core.flow import Flow
from service.processes.shared import flow_counts, reservation_store
from service.processes.shared.flow_counts import FlowCounts
from service.processes.shared.reservation_store import SharedReservationStore

_NUMBERS = 7
_IN_FLIGHT, _LARGE, _LOAD, _HEARTBEAT, _READY, _USED, _SAMPLE_S = range(_NUMBERS)
_TEXT_CELLS = 32
_COLUMNS = _NUMBERS + _TEXT_CELLS + flow_counts.CELLS


@dataclass(frozen=True, slots=True)
class RowCounts:
    """The numbers of rows for front ends and engine processes."""

    front_ends: int
    engines: int

    @property
    def nbytes(self) -> int:
        return self.status_rows_nbytes + reservation_store.memory_nbytes(self.front_ends)

    @property
    def status_rows_nbytes(self) -> int:
        """Size of all rows, in bytes."""
        return (self.front_ends + self.engines) * _COLUMNS * 8


def make_board(row_counts: RowCounts) -> int:
    """Create an empty board and return its descriptor, which all processes inherit."""
    descriptor = os.memfd_create("retouch-board")
    os.ftruncate(descriptor, row_counts.nbytes)
    return descriptor


class StatusBoard:
    """The mapped status board.

    Args:
        descriptor: result of `make_board`.
        row_counts: the argument of `make_board`.
    """

    def __init__(self, descriptor: int, row_counts: RowCounts) -> None:
        memory = memoryview(mmap.mmap(descriptor, row_counts.nbytes))
        self._cells: memoryview[float] = memory[: row_counts.status_rows_nbytes].cast("d")
        self._reservations = memory[row_counts.status_rows_nbytes :]
        starts = range(0, len(self._cells), _COLUMNS)
        rows = [StatusRow(self._cells[start : start + _COLUMNS]) for start in starts]
        self._front_ends, self._engines = rows[: row_counts.front_ends], rows[row_counts.front_ends :]
        of_front_ends = self._cells[: row_counts.front_ends * _COLUMNS]
        self._in_flight, self._large = of_front_ends[_IN_FLIGHT::_COLUMNS], of_front_ends[_LARGE::_COLUMNS]

    def front_end(self, index: int) -> StatusRow:
        """Return the row of a front end."""
        return self._front_ends[index]

    def engine(self, index: int) -> StatusRow:
        """Return the row of an engine process."""
        return self._engines[index]

    def reservation_store(self, index: int) -> SharedReservationStore:
        """Return the store of reservations for the front end with that index."""
        return SharedReservationStore(self._reservations, index)

    def in_flight_elsewhere(self, index: int) -> int:
        """Return the number of requests in flight at all front ends except this one."""
        return int(sum(self._in_flight) - self._in_flight[index])

    @property
    def computing(self) -> int:
        """Number of requests in flight at all front ends, including large ones."""
        return int(sum(self._in_flight) + sum(self._large))

    def samples_of_flows(self) -> Counter[Flow]:
        """Return the number of unanswered samples at all engine processes, by flow (see flow_counts.py)."""
        total: Counter[Flow] = Counter()
        for row in self._engines:
            row.flows.add_to(total)
        return total

    @property
    def sample_s(self) -> float:
        """Seconds per sample in a full batch, at the slowest engine process; 0 until a process has measured it."""
        return max([row.sample_s for row in self._engines])

    @property
    def front_ends(self) -> int:
        """Number of front ends, running or not."""
        return len(self._front_ends)

    @property
    def ready_engines(self) -> int:
        """Number of engine processes that are ready."""
        return sum([row.ready for row in self._engines])

    @property
    def loading(self) -> str:
        """Description of a model that an engine process is loading, for messages; empty if none is being loaded."""
        return next((text for row in self._engines if (text := row.loading)), "")


class StatusRow:
    """The status of one process, written by that process."""

    def __init__(self, cells: memoryview[float]) -> None:
        self._cells = cells
        self.flows = FlowCounts(cells[-flow_counts.CELLS :])
        """Numbers of samples that an engine process has not answered, by flow."""

    @property
    def in_flight(self) -> int:
        """Number of requests in flight at a front end, without those with large pictures."""
        return int(self._cells[_IN_FLIGHT])

    @in_flight.setter
    def in_flight(self, count: int) -> None:
        self._cells[_IN_FLIGHT] = count

    @property
    def large_in_flight(self) -> int:
        """Number of requests in flight with large pictures at a front end."""
        return int(self._cells[_LARGE])

    @large_in_flight.setter
    def large_in_flight(self, count: int) -> None:
        self._cells[_LARGE] = count

    @property
    def load(self) -> int:
        """Number of samples that an engine process has not answered."""
        return int(self._cells[_LOAD])

    @load.setter
    def load(self, count: int) -> None:
        self._cells[_LOAD] = count

    @property
    def sample_s(self) -> float:
        """Seconds per sample in a full batch, as measured by an engine process; 0 before the first measurement."""
        return float(self._cells[_SAMPLE_S])

    @sample_s.setter
    def sample_s(self, seconds: float) -> None:
        self._cells[_SAMPLE_S] = seconds

    @property
    def heartbeat_at(self) -> float:
        """Time of the last heartbeat, in seconds on the monotonic clock; 0 before the first."""
        return float(self._cells[_HEARTBEAT])

    @heartbeat_at.setter
    def heartbeat_at(self, now: float) -> None:
        self._cells[_HEARTBEAT] = now

    @property
    def ready(self) -> bool:
        """Whether the process accepts work."""
        return bool(self._cells[_READY])

    @ready.setter
    def ready(self, ready: bool) -> None:
        self._cells[_READY] = ready

    @property
    def loading(self) -> str:
        """Description of the model that an engine process is loading; a read during a write may mix two texts."""
        return bytes(self._text).partition(b"\0")[0].decode(errors="replace")

    @loading.setter
    def loading(self, text: str) -> None:
        self._text[:] = text.encode()[: len(self._text)].ljust(len(self._text), b"\0")

    @property
    def _text(self) -> memoryview:
        return self._cells[_NUMBERS : _NUMBERS + _TEXT_CELLS].cast("B")

    def claim_row(self, now: float) -> bool:
        """Clear this row and begin to use it; return whether an earlier process has used it."""
        self.clear_row()
        self.heartbeat_at = now
        before, self._cells[_USED] = self._cells[_USED], 1.0
        return bool(before)

    def clear_row(self) -> None:
        """Clear the row of a process that has ended, except for the mark that it was used."""
        for column in (_IN_FLIGHT, _LARGE, _LOAD, _HEARTBEAT, _READY, _SAMPLE_S):
            self._cells[column] = 0.0
        self.flows.clear()
        self.loading = ""
