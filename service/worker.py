"""The device worker: one thread that owns the device, takes batches and answers everyone in them.

A batch that fails is answered and the thread lives on. A thread that dies or hangs is noticed by `Supervisor`,
which answers its batch, loads a fresh engine and starts another thread; until then the server is not ready.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import structlog

from engines.errors import EngineDead
from service.batcher import Batcher, Entry, answer_all, fail
from service.device import CpuDevice
from service.errors import InferenceFailed, NotReady, ServiceError
from service.items import Computed

log = structlog.get_logger(__name__)

WorkerState = Literal["idle", "busy", "hung", "dead"]


class BatchObserver(Protocol):
    """Told of every batch, on the worker's thread."""

    def batch_done(self, model: str, size: int, infer_s: float) -> None:
        """A batch of `size` samples was computed."""


@dataclass(slots=True)
class _Running:
    batch: list[Entry]
    started_at: float


@dataclass(slots=True, eq=False)
class DeviceWorker:
    """One thread, one device. Never restarted: the supervisor starts another."""

    batcher: Batcher
    device: CpuDevice
    observer: BatchObserver
    clock: Callable[[], float]
    _running: _Running | None = field(default=None, init=False)
    _given_up: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="device-worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end after the batcher was closed."""
        self._thread.join(timeout_s)

    def state(self, now: float, hang_timeout_s: float) -> WorkerState:
        """What the thread is doing, by its own work and not by a clock of its own."""
        running = self._running
        if not self._thread.is_alive():
            return "dead"
        if running is None:
            return "idle"
        return "hung" if now - running.started_at > hang_timeout_s else "busy"

    def give_up(self) -> list[Entry]:
        """Disown the thread: whatever it still answers is ignored. Returns the batch it leaves unanswered."""
        self._given_up.set()
        running = self._running
        return running.batch if running else []

    def _run(self) -> None:
        while not self._given_up.is_set() and (batch := self.batcher.take()) is not None:
            self._running = _Running(batch, self.clock())
            try:
                answers = self._compute(batch)
            except EngineDead:
                log.exception("engine died", model=batch[0].model.manifest.key)
                return  # the batch stays in `_running`: the supervisor answers it and loads a fresh engine
            except Exception as error:  # one bad batch must not end the thread
                log.exception("batch failed", model=batch[0].model.manifest.key, batch_size=len(batch))
                answers = [(entry, InferenceFailed(f"the batch failed: {error}; try again")) for entry in batch]
            if self._given_up.is_set():
                return
            answer_all(answers)
            self._running = None

    def _compute(self, batch: list[Entry]) -> list[tuple[Entry, Computed | ServiceError]]:
        started = self.clock()
        tiles = self.device.compute(batch[0].model.engine, [entry.sample for entry in batch])
        infer_s = self.clock() - started
        self.observer.batch_done(batch[0].model.manifest.key, len(batch), infer_s)
        return [
            (entry, InferenceFailed("the generator gave a value that is not finite", code="not_finite"))
            if tile is None
            else (entry, Computed(tile, len(batch), started - entry.enqueued_at, infer_s))
            for entry, tile in zip(batch, tiles, strict=True)
        ]


@dataclass(slots=True, eq=False)
class Supervisor:
    """Keeps a worker alive. `check` is called often from one thread; `ready` is read by anyone."""

    start_worker: Callable[[], DeviceWorker]
    reload_engine: Callable[[Entry], None]
    """Replaces the engine that this entry's model uses; blocking."""
    clock: Callable[[], float]
    hang_timeout_s: float
    restarts: int = 0
    worker: DeviceWorker = field(init=False)

    def __post_init__(self) -> None:
        self.worker = self.start_worker()

    @property
    def ready(self) -> bool:
        """Whether the worker is alive and its batch not overdue."""
        return self.worker.state(self.clock(), self.hang_timeout_s) in ("idle", "busy")

    def check(self) -> bool:
        """Replace the worker if it died or hangs; True if it was replaced."""
        state = self.worker.state(self.clock(), self.hang_timeout_s)
        if state in ("idle", "busy"):
            return False
        lost = self.worker.give_up()
        log.error("worker lost", state=state, batch_size=len(lost))
        fail(lost, NotReady(f"the device worker {state}; it is being restarted", code="worker_lost", retry_after_s=1))
        for entry in lost[:1]:
            self.reload_engine(entry)
        self.worker = self.start_worker()
        self.restarts += 1
        return True
