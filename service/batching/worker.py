"""The device worker: one thread that owns the device, launches batches and answers their samples.

While one batch computes, the next is launched, if the device can overlap them. A batch that fails is answered with an
error and the thread continues; one that does not fit the device's memory is halved. `Supervisor` (supervisor.py)
replaces a thread that dies or hangs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

import structlog

from engines.base import Engine
from engines.errors import DeviceLost, EngineDead, EngineError, EngineOutOfMemory
from service.batching.batcher import Batcher, Entry, answer_entries, fail_entries
from service.core.batch_rows import ComputedSample, Sample
from service.core.errors import InferenceFailed, NotReady, ServiceError
from service.devices.contract import Device, Ticket, Tile
from service.telemetry.redaction import without_folders

log = structlog.get_logger(__name__)

WorkerState = Literal["idle", "busy", "hung", "dead"]
Outcome = Tile | Exception | None
"""The outcome of one sample: its tile, the error that prevented it, or None if the output was not finite."""


class BatchObserver(Protocol):
    """Counts computed batches; called on the event loop of the batch's first sample."""

    def batch_done(self, model: str, device: str, size: int, device_s: float) -> None:
        """Count a batch of `size` samples that took `device_s` seconds of the device's time."""


class BatchTraces(Protocol):
    """Makes the spans of batches, on the worker's thread."""

    def batch_ended(self, model: str, device: str, size: int, infer_s: float) -> str:
        """Make the span of a computed batch of `size` samples; returns its `traceparent`."""


@dataclass(slots=True, eq=False)
class _BatchInFlight:
    """A batch from the moment it leaves the queue until its samples are answered."""

    batch: list[Entry]
    launched_at: float
    ticket: Ticket | None = None
    """The device's ticket from the launch; None before the launch, and once the batch was collected."""
    share: float = 1.0
    """The batch's share of the device, in (0, 1]: less than 1 if other batches are computed at the same time."""

    @property
    def engine(self) -> Engine:
        return self.batch[0].model.engine

    @property
    def samples(self) -> list[Sample]:
        return [entry.sample for entry in self.batch]

    def begun_at(self, progress_at: float) -> float:
        """Return when its computation began. Without sharing, a batch begins when the previous one has ended."""
        return self.launched_at if self.share < 1 else max(self.launched_at, progress_at)


@dataclass(slots=True, eq=False)
class DeviceWorker:
    """One thread for one device. It is never restarted: the supervisor starts a new worker."""

    batcher: Batcher
    device: Device
    observer: BatchObserver
    clock: Callable[[], float]
    traces: BatchTraces | None = None
    """Maker of the batches' spans; None without tracing."""
    device_lost: DeviceLost | None = field(default=None, init=False)
    """The error by which the device was lost, set before the thread ends: a fresh engine would not help."""
    _flights: tuple[_BatchInFlight, ...] = field(default=(), init=False)
    """Batches on the device, oldest first; replaced as a whole, so that the supervisor can read it at any time."""
    _progress_at: float = field(default=0.0, init=False)
    """Time when the last batch finished; the oldest one in flight has had the device to itself since then."""
    _abandoned: bool = field(default=False, init=False)
    _abandon_lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    """Lock for starting a batch: either the supervisor sees the batch, or the worker sees that it was given up."""
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="device-worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end after the batcher was closed."""
        self._thread.join(timeout_s)

    def state(self, now: float, hang_timeout_s: float) -> WorkerState:
        """Return the state of the thread. `hung`: its oldest batch has run for longer than `hang_timeout_s`."""
        flights, progress_at = self._flights, self._progress_at
        if not self._thread.is_alive():
            return "dead"
        if not flights:
            return "idle"
        return "hung" if now - flights[0].begun_at(progress_at) > hang_timeout_s else "busy"

    def abandon(self) -> list[Entry]:
        """Disown the thread, so that its later answers are ignored; returns the entries that it leaves unanswered."""
        with self._abandon_lock:
            self._abandoned = True
            return [entry for flight in self._flights for entry in flight.batch]

    def _run(self) -> None:
        try:
            while not self._abandoned:
                if (batch := self._next_batch()) is not None:
                    self._launch(batch)
                    del batch  # or it would stay in memory while the worker waits for the next
                elif self._flights and not self._abandoned:
                    self._collect(self._collectable_batch or self._flights[0])
                else:
                    return
        except DeviceLost as error:  # as below, but no engine can be loaded
            self.device_lost = error
            log.exception("device lost", batches=len(self._flights))
        except EngineDead:  # the supervisor answers the batches in flight and loads fresh engines
            log.exception("engine died", batches=len(self._flights))
        finally:
            self._close_device()
            for flight in self._flights:
                flight.batch[0].model.release()

    def _next_batch(self) -> list[Entry] | None:
        """Return the batch to launch now; None if a batch must be collected first or the queue is closed."""
        if not self._flights:
            return self.batcher.take(rows=self.device.batch_rows)
        while len(self._flights) < self.device.depth and not self._should_stop_waiting() and not self.batcher.closed:
            batch = self.batcher.take(self.device.poll_s, self.device.batch_rows, interrupted=self._should_stop_waiting)
            if batch is not None:
                return batch
        return None

    def _should_stop_waiting(self) -> bool:
        """Return whether to stop waiting for a new batch: one can be collected, or the thread was given up."""
        return self._abandoned or self._collectable_batch is not None

    @property
    def _collectable_batch(self) -> _BatchInFlight | None:
        """Return the oldest batch that can be collected without waiting, if any."""
        return next((flight for flight in self._flights if flight.ticket is not None and flight.ticket.done), None)

    def _launch(self, batch: list[Entry]) -> None:
        flight = _BatchInFlight(batch, self.clock())
        with self._abandon_lock:
            if not self._abandoned:
                self._flights = (*self._flights, flight)
        if flight not in self._flights:
            fail_entries(batch, NotReady("the device worker was replaced; try again", code="worker_lost"))
            batch[0].model.release()
            return
        try:
            flight.ticket = self.device.launch(flight.engine, flight.samples)
            flight.share = flight.ticket.share
        except EngineDead:
            raise
        except Exception as error:  # one bad batch must not end the thread
            self._handle_failed_batch(flight, error)
        else:
            if len(self._flights) == 1 and flight.ticket.done and not self._abandoned:  # computed while it was launched
                self._collect(flight)

    def _collect(self, flight: _BatchInFlight) -> None:
        ticket, flight.ticket = flight.ticket, None
        assert ticket is not None  # noqa: S101 -- only what was launched stays in flight
        try:
            tiles = self.device.collect(ticket)
        except EngineDead:
            raise
        except Exception as error:  # as above
            self._handle_failed_batch(flight, error)
        else:
            self._answer_batch(flight, tiles)

    def _handle_failed_batch(self, flight: _BatchInFlight, error: Exception) -> None:
        """Answer a failed batch with its error; one that did not fit the memory is computed in halves instead.

        The other batches are collected first, so that they do not use memory meanwhile.
        """
        key, size = flight.batch[0].model.manifest.key, len(flight.batch)
        if isinstance(error, EngineOutOfMemory) and size > 1:
            log.warning("batch halved", model=key, batch_size=size, reason=str(error))
            for other in self._flights:
                if other.ticket is not None:
                    self._collect(other)
            self._answer_batch(flight, self._compute_halves(flight.engine, flight.samples))
            return
        log.error("batch failed", model=key, batch_size=size, exc_info=error)
        self._answer_batch(flight, [error] * size)

    def _compute_halves(self, engine: Engine, samples: Sequence[Sample]) -> list[Outcome]:
        middle = len(samples) // 2
        return [*self._compute_part(engine, samples[:middle]), *self._compute_part(engine, samples[middle:])]

    def _compute_part(self, engine: Engine, samples: Sequence[Sample]) -> Sequence[Outcome]:
        try:
            return self.device.collect(self.device.launch(engine, samples))
        except EngineDead:
            raise
        except EngineOutOfMemory as error:
            return self._compute_halves(engine, samples) if len(samples) > 1 else [error]
        except Exception as error:  # as above
            log.exception("part of a batch failed", batch_size=len(samples))
            return [error] * len(samples)

    def _answer_batch(self, flight: _BatchInFlight, outcomes: Sequence[Outcome]) -> None:
        now, size, batch = self.clock(), len(flight.batch), ""
        started = flight.begun_at(self._progress_at)
        infer_s = now - started
        if any(not isinstance(outcome, Exception) for outcome in outcomes):
            key, device = flight.batch[0].model.manifest.key, flight.engine.device
            loop = flight.batch[0].loop
            if not loop.is_closed():  # before the answers, and not on this thread, which has the next batch to do
                loop.call_soon_threadsafe(self.observer.batch_done, key, device, size, infer_s * flight.share)
            if self.traces is not None and any(entry.traced for entry in flight.batch):
                batch = self.traces.batch_ended(key, device, size, infer_s)
        computed = partial(
            ComputedSample, batch_size=size, infer_s=infer_s, device_s=infer_s * flight.share, batch=batch
        )
        answer_entries(
            (entry, _reply_for_outcome(outcome, started - entry.enqueued_at, computed))
            for entry, outcome in zip(flight.batch, outcomes, strict=True)
        )
        self._progress_at = now
        self._flights = tuple(other for other in self._flights if other is not flight)
        flight.batch[0].model.release()

    def _close_device(self) -> None:
        try:
            self.device.close()
        except EngineError as error:  # a lost context cannot free its memory and need not
            log.warning("device not freed", reason=str(error))


def _reply_for_outcome(
    outcome: Outcome, queue_s: float, computed: Callable[..., ComputedSample]
) -> ComputedSample | ServiceError:
    if outcome is None:
        return InferenceFailed(
            "the model's output has NaN or infinite values; try another picture or another model", code="not_finite"
        )
    if isinstance(outcome, Exception):
        return InferenceFailed(f"the batch failed: {without_folders(str(outcome))}; try again")
    return computed(outcome, queue_s=queue_s)
