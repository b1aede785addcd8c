"""Decides when the server's processes are started again, drained, ended and killed.

On a signal, front ends drain first; engine processes end once no front end is left.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

import structlog

from service.core.settings import Settings
from service.lifecycle.end_requests import EndRequests
from service.lifecycle.sighup import is_hangup
from service.processes.launcher.child import Child
from service.processes.shared.assignment import SECOND_REQUEST

_log = structlog.get_logger(__name__)
_GRACE_S = 20.0
"""Longest time in seconds that processes may take to end after the drain and its delay."""
_STACKS_S = 1.0
"""Seconds in which processes that have not ended by then write their stacks before they are killed."""


class Children:
    """All children of the launcher. Times are in seconds on one monotonic clock.

    Args:
        engines: the engine processes.
        front_ends: the front ends, at least one.
        settings: the server's configuration, for its limits of time.
    """

    def __init__(self, engines: Sequence[Child], front_ends: Sequence[Child], settings: Settings) -> None:
        self._engines, self._front_ends = engines, front_ends
        self._children = [*engines, *front_ends]
        self._hang_timeout_s = settings.hang_timeout_s
        self._allowed_s = settings.drain_delay_s + settings.drain_timeout_s + _GRACE_S
        self._signalled_at: float | None = None
        """Time of the first signal; None before."""
        self._end_requests = EndRequests()
        self._checked_at = 0.0
        self._watching_since = 0.0
        """Time before which missing heartbeats do not count."""
        self._overdue = False
        self.clean = True
        """Whether every process that has ended since the first signal has ended cleanly."""

    @property
    def ended(self) -> bool:
        """Whether a signal has ended all children."""
        return self._signalled_at is not None and not any(child.running for child in self._children)

    @property
    def _front_end_runs(self) -> bool:
        return any(child.running for child in self._front_ends)

    def start(self, now: float) -> None:
        """Start all children."""
        self._checked_at = self._watching_since = now
        for child in self._children:
            child.start(now)

    def handle_signal(self, number: signal.Signals, now: float) -> None:
        """Handle a signal: the first request begins the drain, the second cuts it short, the third kills the processes.

        SIGHUP only begins the drain.
        """
        if self._signalled_at is None:
            self._signalled_at = now
        if not (self._end_requests.add(number, now) or is_hangup(number)):
            return
        count = self._end_requests.count
        if count > 2:
            self._kill(self._children)
        else:
            passed_on = SECOND_REQUEST if count > 1 else signal.SIGTERM
            for child in self._front_ends:
                child.signal(number if is_hangup(number) else passed_on)
        _log.info("ending", signal=number.name, times=count)

    def check(self, now: float) -> None:
        """Find children that have ended, hang or are overdue, and start those whose pause is over."""
        pause_s, self._checked_at = now - self._checked_at, now
        if pause_s > self._hang_timeout_s / 2:  # the machine was suspended, so no process could send a heartbeat
            _log.warning("the launcher was suspended; processes get time to send a heartbeat", for_s=round(pause_s, 1))
            self._watching_since = now
        for child in self._children:
            if (status := child.reap(now)) is not None:
                self._log_ended_child(child, status, now)
        if self._signalled_at is not None:
            self._continue_end(now - self._signalled_at)
        for child in self._children:
            self._check_child(child, now)

    def _continue_end(self, waited_s: float) -> None:
        """End engine processes that no front end needs, and all processes that have had their time."""
        if waited_s > self._allowed_s:
            self._end_overdue(waited_s)
        if not self._front_end_runs:
            for child in self._engines:
                child.signal(signal.SIGTERM)

    def _end_overdue(self, waited_s: float) -> None:
        """Make the processes that have not ended in time write their stacks, then kill them."""
        if not self._overdue:
            self._overdue = True
            running = [child for child in self._children if child.running]
            names, after_s = [child.name for child in running], round(waited_s, 1)
            _log.error(
                "processes did not exit in time; they write their stacks and are killed",
                processes=names,
                after_s=after_s,
            )
            for child in running:
                child.signal(signal.SIGUSR1)
        elif waited_s > self._allowed_s + _STACKS_S:
            self._kill(self._children)

    def _check_child(self, child: Child, now: float) -> None:
        if child.running and min(child.silent_s(now), now - self._watching_since) > self._hang_timeout_s:
            _log.error("process hangs", process=child.name)
            self._kill([child])
        elif not child.running and now >= child.due_at and self._is_needed(child):
            child.start(now)

    def _is_needed(self, child: Child) -> bool:
        """Return whether to restart a child; during shutdown, only engine processes while front ends still drain."""
        return self._signalled_at is None or (child in self._engines and self._front_end_runs)

    def _log_ended_child(self, child: Child, status: int, now: float) -> None:
        if self._signalled_at is not None:
            # these end a process that does not handle them yet, or no more
            if status in (0, -signal.SIGTERM, -signal.SIGHUP, -SECOND_REQUEST):
                return
            self.clean = False
        restart = {"restart_in_s": round(max(0.0, child.due_at - now), 1)} if self._is_needed(child) else {}
        _log.error("process ended", process=child.name, status=status, **restart)

    def _kill(self, children: Sequence[Child]) -> None:
        for child in children:
            child.signal(signal.SIGKILL)
