"""Models, devices and answers for the tests of overlapping batches."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engines.base import Engine
from engines.repository.versions import ServedModel
from service.batching.batcher import Batcher, Entry
from service.batching.supervisor import Supervisor
from service.core.batch_rows import ComputedSample, Sample
from service.core.pictures import Size
from service.devices.contract import Device, Tiles
from tests.fakes.clock import Clock
from tests.serving.waiting import until


@dataclass(eq=False)
class StepTicket:
    values: list[int]
    finished: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    share: float = 1.0

    @property
    def done(self) -> bool:
        return self.finished.is_set()


@dataclass
class StepDevice(Device):
    """A device whose batches the test finishes."""

    depth: int = 2
    launched: list[StepTicket] = field(default_factory=list)
    refuse: list[Exception] = field(default_factory=list)
    closed: threading.Event = field(default_factory=threading.Event)
    finish_at_once: bool = False

    def launch(self, engine: Engine, samples: Sequence[Sample]) -> StepTicket:
        if self.refuse:
            raise self.refuse.pop(0)
        self.launched.append(StepTicket([int(sample.arrays["image"][0, 0, 0]) for sample in samples]))
        if self.finish_at_once:
            self.launched[-1].finished.set()
        return self.launched[-1]

    def collect(self, ticket: Any) -> Tiles:
        ticket.finished.wait()
        if ticket.error is not None:
            raise ticket.error
        return [np.full((1, 1, 3), value, np.uint8) for value in ticket.values]

    def close(self) -> None:
        self.closed.set()


@dataclass
class Nobody:
    batches: list[int] = field(default_factory=list)

    def batch_done(self, model: str, device: str, size: int, infer_s: float) -> None:
        self.batches.append(size)


@dataclass
class Bench:
    batcher: Batcher
    device: StepDevice
    model: ServedModel
    observed: Nobody
    supervisor: Supervisor
    reloaded: list[Entry]
    clock: Clock

    def submit(self, value: int) -> asyncio.Task[ComputedSample]:
        sample = Sample(Size(64, 64), {"image": np.full((64, 64, 3), value, np.uint8)})
        return asyncio.create_task(self.batcher.submit(sample, self.model, 1e12))

    async def launch(self, value: int) -> asyncio.Task[ComputedSample]:
        """Submit a sample and wait until its batch is launched."""
        before = len(self.device.launched)
        task = self.submit(value)
        await until(lambda: len(self.device.launched) > before)
        return task
