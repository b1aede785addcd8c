"""The supervisor of the device worker: it replaces one that died or hangs.

It answers the worker's unfinished batches with an error, loads fresh engines and starts a new worker; until then the
server is not ready. If the process has lost the device, no worker is started: `Supervisor.device_lost` is set, and the
process should end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from engines.errors import DeviceLost
from service.batching.batcher import Entry, fail_entries
from service.batching.worker import DeviceWorker, WorkerState
from service.core.errors import NotReady

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class Supervisor:
    """Replaces a worker that died or hangs. `check` is called periodically by one thread; any may read `ready`."""

    start_worker: Callable[[], DeviceWorker]
    reload_engine: Callable[[Entry], None]
    """Replaces the engine of this entry's model; blocking."""
    clock: Callable[[], float]
    hang_timeout_s: float
    restarts: int = 0
    device_lost: DeviceLost | None = field(default=None, init=False)
    """The error by which the device was lost. Once it is set, no worker is started, and the process should end."""
    worker: DeviceWorker = field(init=False)

    def __post_init__(self) -> None:
        self.worker = self.start_worker()

    @property
    def state(self) -> WorkerState:
        """The worker's state now."""
        return self.worker.state(self.clock(), self.hang_timeout_s)

    @property
    def ready(self) -> bool:
        """Whether the worker is alive and its oldest batch not overdue."""
        return self.state in ("idle", "busy")

    def needs_new_process(self, state: WorkerState) -> bool:
        """Return whether only a new process helps: the worker hangs, or this process has lost the device."""
        return state == "hung" or self.worker.device_lost is not None

    def check(self, state: WorkerState | None = None) -> bool:
        """Replace the worker if it died or hangs; returns whether it was replaced, which is False for a lost device.

        Args:
            state: the state to act on, if the caller has read it; None reads it now.
        """
        state = state or self.state
        if self.device_lost is not None or state in ("idle", "busy"):
            return False
        lost, self.device_lost = self.worker.abandon(), self.worker.device_lost
        if state == "dead" and not lost and self.worker.batcher.closed:  # a shutdown, not a loss
            return False
        log.error("worker lost", state=state, batch_size=len(lost))
        message = f"the device worker {'hangs' if state == 'hung' else 'died'} and is being restarted; try again"
        if self.device_lost is not None:
            message = "the server lost its GPU and must be restarted; ask another replica"
        fail_entries(lost, NotReady(message, code="worker_lost"))
        if self.device_lost is not None:
            return False
        for entry in {id(entry.model.engine): entry for entry in lost}.values():
            self.reload_engine(entry)
        self.worker = self.start_worker()
        self.restarts += 1
        return True
