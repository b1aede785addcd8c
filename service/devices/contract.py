"""Interface of the devices that compute batches for the device worker: one at a time, or several that overlap.

`launch` starts a batch and returns a ticket; `collect` waits for it and returns its tiles. One thread uses a device.
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
from service.core.batch_rows import Sample

log = structlog.get_logger(__name__)

Tile = NDArray[np.uint8]
Tiles = list[Tile | None]
"""One tile for each sample: uint8 H×W×C, or None if the generator's output was not finite."""


_LANES = "lanes"


class Ticket(Protocol):
    """A batch that was launched and not yet collected."""

    @property
    def share(self) -> float:
        """Fraction of the device that computes this batch, 0 to 1; 1 where batches are computed one after the other."""

    @property
    def done(self) -> bool:
        """Whether `collect` would return at once."""


class Device(ABC):
    """Hardware that computes the batches of any engine."""

    depth: int = 1
    """Number of batches that may be launched and not yet collected."""
    poll_s: float = 0.0002
    """Seconds to wait for samples between two checks of `done`, while a batch computes and another may be launched."""
    worker_is_shared: bool = False
    """Whether the thread that launches serves another device, too, which idles while `launch` computes."""

    def batch_rows(self, engine: Engine, first: Sample, max_rows: int, waiting: int) -> int:
        """The largest number of samples to launch now in one batch; 0 where nothing may be launched.

        Called while the queue is locked: it must neither block nor open anything.

        Args:
            engine: computes the batch.
            first: the next sample in the queue; the others of the batch have its tile size.
            max_rows: the engine's largest batch.
            waiting: number of samples that are queued for all engines together, at least 1.
        """
        del engine, first, waiting
        return max_rows

    @abstractmethod
    def launch(self, engine: Engine, samples: Sequence[Sample]) -> Ticket:
        """Start a batch of samples that have one tile size.

        Raises:
            EngineOutOfMemory: the device does not have enough memory; a smaller batch may fit.
            EngineFailed: this batch failed; the device can be used again.
            EngineDead: neither the engine nor the batches launched on it can be used any more.
        """

    @abstractmethod
    def collect(self, ticket: Ticket) -> Tiles:
        """Wait for a batch and return its tiles; each ticket once, in any order. Raises the errors of `launch`."""

    @abstractmethod
    def close(self) -> None:
        """Free the device's memory; called on the thread that used it, when no batch is launched any more."""


class BatchComputer(Protocol):
    """Something that computes a batch while the caller waits."""

    def compute(self, engine: Engine, samples: Sequence[Sample]) -> Tiles: ...


@dataclass(frozen=True, slots=True)
class FinishedBatch:
    """Ticket of a batch that `launch` has computed already."""

    tiles: Tiles
    done: bool = True
    share: float = 1.0


@dataclass(frozen=True)
class SerialDevice(Device):
    """One batch at a time: launching computes."""

    computer: BatchComputer

    def launch(self, engine: Engine, samples: Sequence[Sample]) -> FinishedBatch:
        return FinishedBatch(self.computer.compute(engine, samples))

    def collect(self, ticket: Ticket) -> Tiles:
        assert isinstance(ticket, FinishedBatch)  # noqa: S101 -- made by `launch`
        return ticket.tiles

    def close(self) -> None:
        """Do nothing: this device holds no memory."""


@dataclass(frozen=True, slots=True)
class LaunchedBatch:
    """A batch that was launched: the device that computes it, and that device's ticket for it."""

    device: Device
    ticket: Ticket

    @property
    def share(self) -> float:
        return self.ticket.share

    @property
    def done(self) -> bool:
        return self.ticket.done


@dataclass
class PerEngineDevice(Device):
    """A device that passes each engine's batches to the device that suits it, so that different engines run together.

    serial: the device of engines that compute while the caller waits.
    open_overlapping: opens the device of an engine that computes on a CUDA stream; returns None for other engines.
        Called on the thread that launches, once for each GPU (`cuda:0`) and class of engine. If it raises
        EngineUnavailable, `serial` computes instead.
    open_lanes: opens the one device of all engines with lanes.
    """

    serial: Device
    open_overlapping: Callable[[Engine], Device | None]
    open_lanes: Callable[[Device], Device]
    _devices: dict[str, Device] = field(default_factory=dict, init=False)

    @property
    def depth(self) -> int:  # type: ignore[override] # changes as devices are opened
        depths: dict[str, int] = {}  # engines of one GPU share its depth, and GPUs do not wait for each other
        for key, device in self._devices.items():
            if device is not self.serial:
                hardware = key.partition(" ")[0]
                depths[hardware] = max(depths.get(hardware, 0), device.depth)
        return sum(depths.values()) or self.serial.depth

    @property
    def poll_s(self) -> float:  # type: ignore[override] # as above
        return min((device.poll_s for device in self._devices.values()), default=self.serial.poll_s)

    def batch_rows(self, engine: Engine, first: Sample, max_rows: int, waiting: int) -> int:
        key = self._device_key(engine)
        device = self._devices.get(key or _LANES, self.serial)  # `launch` opens a device that is not open yet
        return device.batch_rows(engine, first, max_rows, waiting)

    def launch(self, engine: Engine, samples: Sequence[Sample]) -> LaunchedBatch:
        device = self._device_of(engine)
        return LaunchedBatch(device, device.launch(engine, samples))

    def collect(self, ticket: Ticket) -> Tiles:
        assert isinstance(ticket, LaunchedBatch)  # noqa: S101 -- made by `launch`
        return ticket.device.collect(ticket.ticket)

    def close(self) -> None:
        for device in self._devices.values():
            device.close()

    def _device_key(self, engine: Engine) -> str:
        if engine.device.startswith("cuda"):
            return f"{engine.device} {type(engine).__name__}"
        return _LANES if isinstance(engine, LaneEngine) and engine.lanes > 1 else ""

    def _device_of(self, engine: Engine) -> Device:
        key = self._device_key(engine)
        if not key:
            return self.serial
        device = self._devices.get(key)
        if device is None:
            device = self._devices[key] = self._open_device(engine, key)
            overlapping = [one for one in self._devices.values() if one is not self.serial]
            for one in overlapping:
                one.worker_is_shared = len(overlapping) > 1
        return device

    def _open_device(self, engine: Engine, key: str) -> Device:
        if key == _LANES:
            return self.open_lanes(self.serial)
        try:
            return self.open_overlapping(engine) or self.serial
        except EngineUnavailable as error:
            log.warning("batches do not overlap", engine=engine.name, device=engine.device, reason=str(error))
            return self.serial
