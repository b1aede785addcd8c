"""A CPU in lanes: the engine computes several independent batches at once, each with a part of the threads.

When all threads worked on one batch, they waited for each other at its end for 2.5 to 5 % of the time under load
(ADR 18).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from weakref import WeakKeyDictionary

from engines.base import Engine
from engines.cpu.lanes import LaneEngine
from engines.errors import EngineError, EngineFailed
from service.core.batch_rows import Sample
from service.devices.contract import Device, Ticket, Tile, Tiles
from service.devices.cpu import output_to_tiles, samples_to_inputs

_MIN_BATCH_S = 0.01
"""Seconds that a batch on a lane should take at least; starting and collecting one costs tenths of a millisecond."""
_SMOOTHING = 0.8
"""Weight of the earlier batches in the smoothed time for a row; the newest batch has the rest."""


RowSize = tuple[int, int, int]
"""Height and width of a tile, and the number of results for each row."""


@dataclass(slots=True)
class LaneTicket:
    """A batch that is computed on a lane."""

    engine: LaneEngine
    lane: int
    size: RowSize
    into: list[Tile | None]
    begun_at: float
    computed_at: float | None = None

    @property
    def share(self) -> float:
        return 1 / self.engine.lanes

    @property
    def done(self) -> bool:
        return self.engine.ended(self.lane)


class LaneDevice(Device):
    """The lanes of one CPU, shared by all engines with lanes. A single sample gets all threads and no lane.

    Where the same thread serves a GPU, too, a single sample also goes on a lane, so that the GPU need not wait.

    Args:
        alone: the device that computes a batch with all threads, while the caller waits.
        wake: called when a batch was computed, on any thread.
        clock: returns seconds.
    """

    poll_s = 0.05  # `wake` reports finished batches at once; only those that failed wait this long

    def __init__(self, alone: Device, wake: Callable[[], None], clock: Callable[[], float]) -> None:
        self.depth = 2
        self._alone = alone
        self._wake = wake
        self._clock = clock
        self._in_use: dict[int, LaneTicket] = {}
        self._waiting = 1
        """Number of samples that were queued at the last call of `batch_rows`; 1 before it, because the first batch was
        planned before there was this device.
        """
        self._row_s: WeakKeyDictionary[Engine, dict[RowSize, float]] = WeakKeyDictionary()
        """Smoothed seconds that a lane takes for one row of a size."""

    def batch_rows(self, engine: Engine, first: Sample, max_rows: int, waiting: int) -> int:
        """The smallest batch that is worth a lane, because larger batches are no faster per row on a CPU.

        For an engine without lanes, which uses all threads: the whole batch if no lane is in use, else 0.
        """
        if not isinstance(engine, LaneEngine) or engine.lanes == 1:
            return 0 if self._in_use else max_rows
        free = engine.lanes - len(self._in_use)
        if free <= 0:
            return 0
        self._waiting = waiting
        row_s = self._row_s.get(engine, {}).get(_row_size(first), _MIN_BATCH_S)
        wanted = ceil(_MIN_BATCH_S / row_s) if row_s > 0 else max_rows
        return min(wanted, ceil(max_rows / engine.lanes), ceil(waiting / free))

    def launch(self, engine: Engine, samples: Sequence[Sample]) -> Ticket:
        assert isinstance(engine, LaneEngine)  # noqa: S101 -- checked by `PerEngineDevice`
        if len(samples) == self._waiting == 1 and not self._in_use and not self.worker_is_shared:
            return self._alone.launch(engine, samples)
        lane = next((lane for lane in range(engine.lanes) if lane not in self._in_use), None)
        if lane is None:
            raise EngineFailed(f"all {engine.lanes} lanes are in use; collect a batch first")
        feed = samples_to_inputs(engine.manifest, samples)
        into = [sample.into for sample in samples]
        ticket = LaneTicket(engine, lane, _row_size(samples[0]), into, self._clock())

        def computed() -> None:
            ticket.computed_at = self._clock()
            self._wake()

        engine.begin(lane, feed, computed)
        self._in_use[lane] = ticket
        self.depth = engine.lanes + 1  # never reached, so that the worker waits for whichever lane is done first
        return ticket

    def collect(self, ticket: Ticket) -> Tiles:
        if not isinstance(ticket, LaneTicket):
            return self._alone.collect(ticket)
        try:
            outputs = ticket.engine.end(ticket.lane)
        finally:
            del self._in_use[ticket.lane]
        self._record_time(ticket)
        return output_to_tiles(outputs["output"], ticket.into)

    def close(self) -> None:
        """Wait for the batches on the lanes, because their engines may be closed after this."""
        for ticket in self._in_use.values():
            with suppress(EngineError):
                ticket.engine.end(ticket.lane)
        self._in_use.clear()

    def _record_time(self, ticket: LaneTicket) -> None:
        if ticket.computed_at is not None:
            row_s = (ticket.computed_at - ticket.begun_at) / len(ticket.into)
            known = self._row_s.setdefault(ticket.engine, {})
            known[ticket.size] = known.get(ticket.size, row_s) * _SMOOTHING + row_s * (1 - _SMOOTHING)


def _row_size(sample: Sample) -> RowSize:
    return (*sample.tile, sample.samples)
