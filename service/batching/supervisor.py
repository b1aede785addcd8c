"""The supervisor of the device worker: it replaces one that died or hangs.

It answers the batches that the worker leaves, loads fresh engines and starts another worker; until then the server is
not ready. A process that has lost the device itself starts none: `Supervisor.device_lost` is set, and the process
should end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from engines.errors import DeviceLost
from service.batching.batcher import Entry, fail
from service.batching.worker import DeviceWorker, WorkerState
from service.core.errors import NotReady

log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class Supervisor:
    """Replaces a worker that died or hangs. `check` is called often, from one thread; any thread may read `ready`."""

    start_worker: Callable[[], DeviceWorker]
    reload_engine: Callable[[Entry], None]
    """Replaces the engine that this entry's model uses; blocking."""
    clock: Callable[[], float]
    hang_timeout_s: float
    restarts: int = 0
    device_lost: DeviceLost | None = field(default=None, init=False)
    """Set once the process has lost the device: no worker is started any more, and the process should end."""
    worker: DeviceWorker = field(init=False)

    def __post_init__(self) -> None:
        self.worker = self.start_worker()

    @property
    def state(self) -> WorkerState:
        """What the worker is doing now; a moment later it may be something else."""
        return self.worker.state(self.clock(), self.hang_timeout_s)

    @property
    def ready(self) -> bool:
        """Whether the worker is alive and its batch not overdue."""
        return self.state in ("idle", "busy")

    def beyond_repair(self, state: WorkerState) -> bool:
        """Whether only a new process helps: the worker hangs, or this process has lost the device."""
        return state == "hung" or self.worker.device_lost is not None

    def check(self, state: WorkerState | None = None) -> bool:
        """Replace the worker if it died or hangs; True if it was replaced, which a lost device does not allow.

        Args:
            state: the state to act on, where the caller has read it already; None reads it now.
        """
        state = state or self.state
        if self.device_lost is not None or state in ("idle", "busy"):
            return False
        lost, self.device_lost = self.worker.give_up(), self.worker.device_lost
        if state == "dead" and not lost and self.worker.batcher.closed:  # a shutdown, not a loss
            return False
        log.error("worker lost", state=state, batch_size=len(lost))
        said = f"the device worker {state}; it is being restarted"
        if self.device_lost is not None:
            said = "the server lost its GPU and must be started again; ask another replica"
        fail(lost, NotReady(said, code="worker_lost"))
        if self.device_lost is not None:
            return False
        for entry in {id(entry.model.engine): entry for entry in lost}.values():
            self.reload_engine(entry)
        self.worker = self.start_worker()
        self.restarts += 1
        return True
