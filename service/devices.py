"""What computes batches for the device worker: one at a time, or several that overlap.

A batch is launched, which returns a ticket, and collected, which waits for it. A device is used by one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from engines.base import Engine
from service.items import Sample

Tile = NDArray[np.uint8]
Tiles = list[Tile | None]
"""One for each sample: uint8 H×W×C, or None where the generator's output was not finite."""


class Ticket(Protocol):
    """A batch on its way."""

    @property
    def done(self) -> bool:
        """Whether `collect` would not have to wait; does not wait itself."""


class Device(Protocol):
    """Computes the batches of any engine."""

    @property
    def depth(self) -> int:
        """How many batches may be launched and not yet collected."""

    def launch(self, engine: Engine, samples: Sequence[Sample]) -> Ticket:
        """Start a batch; samples of one tile size.

        Raises:
            EngineOutOfMemory: there is no room for it; a smaller one may fit.
            EngineFailed: this batch failed; the device can be used again.
            EngineDead: the engine cannot be used again, nor what it has launched.
        """

    def collect(self, ticket: Ticket) -> Tiles:
        """Wait for a batch and take what came out; each ticket once, in any order. Raises as `launch`."""

    def close(self) -> None:
        """Free what the device holds; called on the thread that used it, when nothing is launched any more."""


class Compute(Protocol):
    """Computes a batch while the caller waits."""

    def compute(self, engine: Engine, samples: Sequence[Sample]) -> Tiles: ...


@dataclass(frozen=True, slots=True)
class Computed:
    """A batch that was done when it was launched."""

    tiles: Tiles
    done: bool = True


@dataclass(frozen=True, slots=True)
class SerialDevice:
    """One batch at a time: launching computes."""

    computer: Compute
    depth: int = 1

    def launch(self, engine: Engine, samples: Sequence[Sample]) -> Computed:
        return Computed(self.computer.compute(engine, samples))

    def collect(self, ticket: Ticket) -> Tiles:
        assert isinstance(ticket, Computed)  # noqa: S101 -- the device's own
        return ticket.tiles

    def close(self) -> None:
        """Nothing is held."""
