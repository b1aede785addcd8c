"""Engines whose batches take given times on a clock that only they advance."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from engines.base import BatchShape, Feed, Outputs
from engines.fake import FakeEngine
from engines.manifest import read_manifest
from engines.race.timing import Racer, run_race
from tests.engines.conftest import conv_graph
from tests.fakes.clock import Clock

SMALL, LARGE = BatchShape(1, 16, 16), BatchShape(8, 16, 16)


@dataclass
class Track:
    """A maker of racing engines that take given milliseconds for each shape, on a clock that only they advance."""

    directory: Path
    clock: Clock
    batches: int = 0
    open_engines: int = 0

    def racer(self, name: str, *ms: float, error: Exception | None = None, from_batch: int = 1) -> Racer:
        track, manifest = self, read_manifest(self.directory)

        class Timed(FakeEngine):
            batches = 0
            is_open = True

            def infer(self, feed: Feed) -> Outputs:
                self.batches += 1
                track.batches += 1
                if error is not None and self.batches >= from_batch:
                    raise error
                shape = LARGE if len(feed["image"]) > 1 else SMALL
                track.clock.now += dict(zip((SMALL, LARGE), (*ms, *ms[-1:]), strict=False))[shape] / 1e3
                return {}

            def close(self) -> None:
                track.open_engines -= self.is_open
                self.is_open = False

        def opened() -> FakeEngine:
            if error is not None and from_batch == 0:
                raise error
            track.open_engines += 1
            return Timed(manifest)

        return Racer(name, opened)

    def run(self, *racers: Racer, seconds: float = 1.0, shapes=(SMALL, LARGE)):
        return self.race(*racers, seconds=seconds, shapes=shapes).result

    def race(self, *racers: Racer, seconds: float = 1.0, shapes=(SMALL, LARGE)):
        return run_race(racers, shapes, seconds, clock=self.clock)


@pytest.fixture
def directory(publish) -> Path:
    return publish(onnx_model=conv_graph())


@pytest.fixture
def track(directory) -> Track:
    return Track(directory, Clock())
