"""A CPU whose engine computes several batches side by side: each goes its own way, and none waits for another's end.

Threads that met at the end of each batch stood still there for 2.5 to 5 % of the time under load, and nobody was
answered before the slowest of a batch (docs/benchmarks.md).
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
from service.core.samples import Sample
from service.devices.contract import Device, Ticket, Tile, Tiles
from service.devices.cpu import collate, split

_WORTH_S = 0.01
"""A batch on a lane should take that long: handing it over and back takes a few tenths of a millisecond."""
_KEPT = 0.8
"""Weight of what was known of an engine's speed against one batch more."""


RowSize = tuple[int, int, int]
"""Height and width of a tile, and how many pictures of it a row gives."""


@dataclass(slots=True)
class LaneTicket:
    """A batch on its lane."""

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
    """The lanes of one CPU, whichever engine is on them. A sample that is alone has all threads, and nothing beside it.

    In company it goes on a lane, too: a GPU would stand still as long as the caller waits.

    Args:
        alone: computes a batch while the caller waits.
        wake: called when a batch was computed, on any thread.
        clock: in seconds.
    """

    look_s = 0.05  # `wake` tells at once, only not of batches that failed

    def __init__(self, alone: Device, wake: Callable[[], None], clock: Callable[[], float]) -> None:
        self.depth = 2
        self._alone = alone
        self._wake = wake
        self._clock = clock
        self._taken: dict[int, LaneTicket] = {}
        self._waiting = 0
        """When it was last decided how many to launch."""
        self._row_s: WeakKeyDictionary[Engine, dict[RowSize, float]] = WeakKeyDictionary()
        """Seconds that a lane takes for a row of that size."""

    def rows(self, engine: Engine, first: Sample, most: int, waiting: int) -> int:
        """As few as are worth it, as a CPU takes as long for each of many rows; the other lanes get their share.

        Of an engine without lanes all of them, while nothing is on a lane: it takes all threads.
        """
        if not isinstance(engine, LaneEngine) or engine.lanes == 1:
            return 0 if self._taken else most
        free = engine.lanes - len(self._taken)
        if free <= 0:
            return 0
        self._waiting = waiting
        row_s = self._row_s.get(engine, {}).get(_size(first), _WORTH_S)
        worth = ceil(_WORTH_S / row_s) if row_s > 0 else most
        return min(worth, ceil(most / engine.lanes), ceil(waiting / free))

    def launch(self, engine: Engine, samples: Sequence[Sample]) -> Ticket:
        assert isinstance(engine, LaneEngine)  # noqa: S101 -- whoever routes batches has looked
        if len(samples) == self._waiting == 1 and not self._taken and not self.in_company:
            return self._alone.launch(engine, samples)
        lane = next((lane for lane in range(engine.lanes) if lane not in self._taken), None)
        if lane is None:
            raise EngineFailed(f"all {engine.lanes} lanes are taken; collect one first")
        feed = collate(engine.manifest, samples)
        into = [sample.into for sample in samples]
        ticket = LaneTicket(engine, lane, _size(samples[0]), into, self._clock())

        def computed() -> None:
            ticket.computed_at = self._clock()
            self._wake()

        engine.begin(lane, feed, computed)
        self._taken[lane] = ticket
        self.depth = engine.lanes + 1  # when all lanes are taken, whichever is done first is waited for
        return ticket

    def collect(self, ticket: Ticket) -> Tiles:
        if not isinstance(ticket, LaneTicket):
            return self._alone.collect(ticket)
        try:
            outputs = ticket.engine.end(ticket.lane)
        finally:
            del self._taken[ticket.lane]
        self._learn(ticket)
        return split(outputs["output"], ticket.into)

    def close(self) -> None:
        """Wait for what is on the lanes: it is computed in the memory of engines that may be closed after this."""
        for ticket in self._taken.values():
            with suppress(EngineError):
                ticket.engine.end(ticket.lane)
        self._taken.clear()

    def _learn(self, ticket: LaneTicket) -> None:
        if ticket.computed_at is not None:
            row_s = (ticket.computed_at - ticket.begun_at) / len(ticket.into)
            known = self._row_s.setdefault(ticket.engine, {})
            known[ticket.size] = known.get(ticket.size, row_s) * _KEPT + row_s * (1 - _KEPT)


def _size(sample: Sample) -> RowSize:
    return (*sample.tile, sample.samples)
