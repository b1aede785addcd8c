"""An engine with lanes whose batches are computed on the test's command."""

from __future__ import annotations

import threading
from collections.abc import Callable

from engines.base import Feed, Outputs
from engines.cpu.lanes import LaneEngine
from engines.errors import EngineFailed
from engines.fake import FakeEngine
from engines.manifest import Manifest


class FakeLaneEngine(FakeEngine, LaneEngine):
    """`compute(lane)` completes a lane's batch; `break_down(lane)` fails it and does not call `done`, as OpenVINO."""

    def __init__(self, manifest: Manifest, lanes: int = 2) -> None:
        super().__init__(manifest)
        self.lanes = lanes
        self.begun: dict[int, tuple[Feed, Callable[[], None]]] = {}
        self.finished: dict[int, Outputs | EngineFailed] = {}
        self.refuse: list[Exception] = []
        self._ends = [threading.Event() for _ in range(lanes)]

    def begin(self, lane: int, feed: Feed, done: Callable[[], None]) -> None:
        assert lane not in self.begun
        if self.refuse:
            raise self.refuse.pop()
        self.begun[lane] = feed, done

    def compute(self, lane: int) -> None:
        feed, done = self.begun[lane]
        self._finish(lane, self.infer(feed))
        done()

    def break_down(self, lane: int) -> None:
        self._finish(lane, EngineFailed("out of registers"))

    def ended(self, lane: int) -> bool:
        return lane in self.finished

    def end(self, lane: int) -> Outputs:
        assert self._ends[lane].wait(20)
        self._ends[lane].clear()
        del self.begun[lane]
        outcome = self.finished.pop(lane)
        if isinstance(outcome, EngineFailed):
            raise outcome
        return outcome

    def _finish(self, lane: int, outcome: Outputs | EngineFailed) -> None:
        self.finished[lane] = outcome
        self._ends[lane].set()
