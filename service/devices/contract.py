"""What computes batches for the device worker: one at a time, or several that overlap.

A batch is launched, which returns a ticket, and collected, which waits for it. A device is used by one thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import structlog
from numpy.typing import NDArray

from engines.base import Engine
from engines.cpu.lanes import LaneEngine
from engines.errors import EngineUnavailable
from service.core.samples import Sample

log = structlog.get_logger(__name__)

Tile = NDArray[np.uint8]
Tiles = list[Tile | None]
"""One for each sample: uint8 H×W×C, or None where the generator's output was not finite."""


_LANES = "lanes"


class Ticket(Protocol):
    """A batch on its way."""

    @property
    def share(self) -> float:
        """Of the device, which it has to itself; 1 where batches are computed one after the other."""

    @property
    def done(self) -> bool:
        """Whether `collect` would not have to wait; does not wait itself."""


class Device(ABC):
    """Computes the batches of any engine."""

    depth: int = 1
    """How many batches may be launched and not yet collected."""
    look_s: float = 0.0002
    """While one computes and another could be launched: how long to wait for one before asking whether it is done."""
    in_company: bool = False
    """Whether whoever launches looks after another device, too, which stands still while `launch` computes."""

    def rows(self, engine: Engine, first: Sample, most: int, waiting: int) -> int:
        """How many samples to launch now in one batch, at most; 0 where nothing may be launched.

        Called with the queue locked: it neither waits nor opens anything.

        Args:
            engine: theirs.
            first: the sample whose turn it is; the others are of its size.
            most: the engine's largest batch.
            waiting: how many samples wait, for whichever engine, at least 1.
        """
        del engine, first, waiting
        return most

    @abstractmethod
    def launch(self, engine: Engine, samples: Sequence[Sample]) -> Ticket:
        """Start a batch; samples of one tile size.

        Raises:
            EngineOutOfMemory: there is no room for it; a smaller one may fit.
            EngineFailed: this batch failed; the device can be used again.
            EngineDead: the engine cannot be used again, nor what it has launched.
        """

    @abstractmethod
    def collect(self, ticket: Ticket) -> Tiles:
        """Wait for a batch and take what came out; each ticket once, in any order. Raises as `launch`."""

    @abstractmethod
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
    share: float = 1.0


@dataclass(frozen=True)
class SerialDevice(Device):
    """One batch at a time: launching computes."""

    computer: Compute

    def launch(self, engine: Engine, samples: Sequence[Sample]) -> Computed:
        return Computed(self.computer.compute(engine, samples))

    def collect(self, ticket: Ticket) -> Tiles:
        assert isinstance(ticket, Computed)  # noqa: S101 -- the device's own
        return ticket.tiles

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True)
class RoutedTicket:
    """A batch, and who computes it."""

    device: Device
    ticket: Ticket

    @property
    def share(self) -> float:
        return self.ticket.share

    @property
    def done(self) -> bool:
        return self.ticket.done


@dataclass
class RoutingDevice(Device):
    """Each engine's batches to the device that suits it: models on different engines are served side by side.

    serial: for engines that compute while the caller waits.
    open_overlapping: the device of an engine that computes on a stream; None for other engines. Called on the thread
        that launches, once for each place (`cuda:0`) and kind of engine; raises EngineUnavailable where something is
        missing, and `serial` does it then.
    open_lanes: the device of all engines with lanes.
    """

    serial: Device
    open_overlapping: Callable[[Engine], Device | None]
    open_lanes: Callable[[Device], Device]
    _opened: dict[str, Device] = field(default_factory=dict, init=False)

    @property
    def depth(self) -> int:  # type: ignore[override] # of what is open by now
        at: dict[str, int] = {}  # engines of one place share its depth, and no place waits for another
        for key, device in self._opened.items():
            if device is not self.serial:
                place = key.partition(" ")[0]
                at[place] = max(at.get(place, 0), device.depth)
        return sum(at.values()) or self.serial.depth

    @property
    def look_s(self) -> float:  # type: ignore[override] # as above
        return min((device.look_s for device in self._opened.values()), default=self.serial.look_s)

    def rows(self, engine: Engine, first: Sample, most: int, waiting: int) -> int:
        key = self._key_of(engine)
        device = self._opened.get(key or _LANES, self.serial)  # not open yet: launching opens it
        return device.rows(engine, first, most, waiting)

    def launch(self, engine: Engine, samples: Sequence[Sample]) -> RoutedTicket:
        device = self._device_of(engine)
        return RoutedTicket(device, device.launch(engine, samples))

    def collect(self, ticket: Ticket) -> Tiles:
        assert isinstance(ticket, RoutedTicket)  # noqa: S101 -- the device's own
        return ticket.device.collect(ticket.ticket)

    def close(self) -> None:
        for device in self._opened.values():
            device.close()

    def _key_of(self, engine: Engine) -> str:
        if engine.device.startswith("cuda"):
            return f"{engine.device} {type(engine).__name__}"
        return _LANES if isinstance(engine, LaneEngine) and engine.lanes > 1 else ""

    def _device_of(self, engine: Engine) -> Device:
        key = self._key_of(engine)
        if not key:
            return self.serial
        device = self._opened.get(key)
        if device is None:
            device = self._opened[key] = self._open(engine, key)
            overlapping = [one for one in self._opened.values() if one is not self.serial]
            for one in overlapping:
                one.in_company = len(overlapping) > 1
        return device

    def _open(self, engine: Engine, key: str) -> Device:
        if key == _LANES:
            return self.open_lanes(self.serial)
        try:
            return self.open_overlapping(engine) or self.serial
        except EngineUnavailable as error:
            log.warning("batches do not overlap", engine=engine.name, device=engine.device, reason=str(error))
            return self.serial
