"""A process that the launcher starts, monitors and restarts."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from service.processes.launcher.process_plan import Restarts

_log = structlog.get_logger(__name__)
_START_TIMEOUT_S = 600.0
"""Seconds without a first heartbeat after which a starting process counts as hung. Heartbeats continue while engines
are built, which may take minutes."""


@dataclass(slots=True, eq=False)
class Child:
    """One process of the server across its restarts. Times are in seconds on one monotonic clock."""

    name: str
    spawn: Callable[[], subprocess.Popen[bytes]]
    gone: Callable[[int], None]
    """Called with the id of each process that has ended."""
    heartbeat_at: Callable[[], float]
    """Returns the time of the last heartbeat of the process's event loop."""
    restarts: Restarts = field(default_factory=Restarts)
    process: subprocess.Popen[bytes] | None = None
    due_at: float = 0.0
    """Earliest time of its next start."""
    started_at: float = 0.0
    has_started: bool = False
    """Whether the process has written a heartbeat."""

    @property
    def running(self) -> bool:
        return self.process is not None

    def start(self, now: float) -> None:
        """Start the process; if the system lacks resources for it, schedule another attempt."""
        try:
            self.process, self.started_at, self.has_started = self.spawn(), now, False
        except OSError as error:  # the other processes continue
            pause_s = self.restarts.pause_s(0.0)
            self.due_at = now + pause_s
            _log.error("process not started", process=self.name, reason=str(error), again_in_s=pause_s)
        else:
            _log.info("process started", process=self.name, pid=self.process.pid)

    def signal(self, number: int) -> None:
        """Send a signal to the process, if it runs."""
        if self.process is not None:
            self.process.send_signal(number)

    def reap(self, now: float) -> int | None:
        """Return the exit status if the process has newly ended, and schedule its next start; else return None."""
        if self.process is None or (status := self.process.poll()) is None:
            return None
        self.gone(self.process.pid)
        self.process = None
        self.due_at = now + self.restarts.pause_s(now - self.started_at)
        return status

    def silent_s(self, now: float) -> float:
        """Return the seconds since the process's last heartbeat.

        0 until the first heartbeat, or, if that does not come, until `_START_TIMEOUT_S` has passed; and 0 once a
        process has cleared its row of the status board because it ends: it limits that time itself (end_limit.py).
        """
        heartbeat_at = self.heartbeat_at()
        if heartbeat_at > self.started_at:
            self.has_started = True
            return now - heartbeat_at
        return 0.0 if self.has_started else max(0.0, now - self.started_at - _START_TIMEOUT_S)
