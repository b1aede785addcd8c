"""Starts the server's processes, restarts those that die, and ends them in a safe order.

Front ends listen on separate sockets on one port (SO_REUSEPORT), so a dead one gets no connections. On a signal, front
ends drain first; engine processes end once no front end is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress

import structlog

from service.core.settings import Settings, SettingsInvalid
from service.lifecycle.end_requests import LAUNCHER_APART_S, EndRequests
from service.lifecycle.host import usable_cores
from service.lifecycle.sighup import hangup_signals, is_hangup
from service.preflight import check_ports, run_preflight
from service.processes.launcher.address import bind_shared_address, reserve_address
from service.processes.launcher.child import Child
from service.processes.launcher.process_plan import cores_for_pictures, divide_settings, facts_of_this_host
from service.processes.launcher.run_directory import RunDirectory
from service.processes.launcher.signal_queue import Signals
from service.processes.shared.assignment import Assignment
from service.processes.shared.code_version import code_version
from service.processes.shared.status_board import RowCounts, StatusBoard, make_board
from service.telemetry.metrics_port import serve_metrics

_log = structlog.get_logger(__name__)
_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})
_POLL_INTERVAL_S = 0.2
_GRACE_S = 20.0
"""Longest time in seconds that processes may take to end after the drain and its delay."""
_STACKS_S = 1.0
"""Seconds in which processes that have not ended by then write their stacks before they are killed."""


class Launcher:
    """The parent of all processes.

    Args:
        settings: the server's configuration.
        front_ends: number of front ends, at least 1.
        stack: holds the launcher's resources until it is closed.
    """

    def __init__(self, settings: Settings, front_ends: int, stack: ExitStack) -> None:
        self._settings, self._code = settings, code_version()
        self._signals = stack.enter_context(Signals(_SIGNALS | hangup_signals()))
        self._run_directory = stack.enter_context(RunDirectory.create())
        host = facts_of_this_host(settings)
        self._devices, self._cores_for_pictures = host.gpus, cores_for_pictures(settings, host)
        engines = len(self._devices)
        self._row_counts = RowCounts(front_ends, engines)
        self._board_fd = make_board(self._row_counts)
        stack.callback(os.close, self._board_fd)
        self._board = StatusBoard(self._board_fd, self._row_counts)
        self._address = reserve_address(settings.host, settings.port, "port", stack)
        if settings.grpc_port:  # each front end binds it itself
            reserve_address(settings.host, settings.grpc_port, "grpc_port", stack)
        self._listeners = [
            stack.enter_context(self._run_directory.listen_for_engine(index)) for index in range(engines)
        ]
        self._engines = [self._make_child("engine", index) for index in range(engines)]
        self._front_ends = [self._make_child("front_end", index) for index in range(front_ends)]
        self._signalled = False
        self._end_requests = EndRequests(LAUNCHER_APART_S)
        self._drained_at = 0.0
        self._looked_at = self._watching_since = time.monotonic()
        self._clean, self._overdue = True, False

    @property
    def _children(self) -> list[Child]:
        return [*self._engines, *self._front_ends]

    def run(self) -> int:
        """Serve until signals end the server; returns the exit status, 0 if every process ended cleanly."""
        now = time.monotonic()
        for child in self._children:
            child.start(now)
        while not (self._signalled and not any(child.running for child in self._children)):
            received = self._signals.wait(_POLL_INTERVAL_S)
            now = time.monotonic()
            for number in received:
                if number != signal.SIGCHLD:
                    self._handle_signal(signal.Signals(number), now)
            self._check_children(now)
        return 0 if self._clean else 1

    def serve_metrics(self) -> bool:
        """Serve the metrics of all processes on a port of their own; returns False if it is not available."""
        port = self._settings.metrics_port
        try:
            serve_metrics(self._settings.host, port, self._run_directory.combined_metrics())
        except OSError as error:
            _log.error("metrics port not available", port=port, reason=str(error))
            return False
        return True

    def _handle_signal(self, number: signal.Signals, now: float) -> None:
        """Handle a signal: the first request begins the drain, the second cuts it short, the third kills the processes.

        SIGHUP only begins the drain.
        """
        self._drained_at, self._signalled = self._drained_at or now, True
        if not (self._end_requests.add(number, now) or is_hangup(number)):
            return
        _log.info("ending", signal=number.name, times=self._end_requests.count)
        if self._end_requests.count > 2:
            self._kill(self._children)
            return
        for child in self._front_ends:
            child.signal(number if is_hangup(number) else signal.SIGTERM)

    def _check_children(self, now: float) -> None:
        still_s, self._looked_at = now - self._looked_at, now
        if (
            still_s > self._settings.hang_timeout_s / 2
        ):  # the machine was suspended, so no process could send a heartbeat
            _log.warning("the launcher was suspended; processes get time to send a heartbeat", for_s=round(still_s, 1))
            self._watching_since = now
        for child in self._children:
            if (status := child.reap(now)) is not None:
                self._log_ended_child(child, status)
        alive = any(child.running for child in self._front_ends)
        allowed_s = self._settings.drain_delay_s + self._settings.drain_timeout_s + _GRACE_S
        if self._signalled and now - self._drained_at > allowed_s:
            self._end_overdue(now - self._drained_at, allowed_s)
        if self._signalled and not alive:
            for child in self._engines:
                child.signal(signal.SIGTERM)
        for child in self._children:
            self._check_child(child, now, alive)

    def _end_overdue(self, waited_s: float, allowed_s: float) -> None:
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
        elif waited_s > allowed_s + _STACKS_S:
            self._kill(self._children)

    def _check_child(self, child: Child, now: float, alive: bool) -> None:
        if child.running and min(child.silent_s(now), now - self._watching_since) > self._settings.hang_timeout_s:
            _log.error("process hangs", process=child.name)
            self._kill([child])
        elif not child.running and now >= child.due_at and self._is_needed(child, alive):
            child.start(now)

    def _is_needed(self, child: Child, alive: bool) -> bool:
        """Return whether to restart a child; during shutdown, only engine processes while front ends still drain."""
        return not self._signalled or (alive and child in self._engines)

    def _log_ended_child(self, child: Child, status: int) -> None:
        if self._signalled and status in (
            0,
            -signal.SIGTERM,
            -signal.SIGHUP,
        ):  # SIGTERM or SIGHUP ended it before it had installed its handlers
            return
        if self._signalled:
            self._clean = False
        pause_s = round(max(0.0, child.due_at - time.monotonic()), 1)
        _log.error("process ended", process=child.name, status=status, restart_in_s=pause_s)

    def _kill(self, children: Sequence[Child]) -> None:
        self._clean = self._clean and not self._signalled
        for child in children:
            child.signal(signal.SIGKILL)

    def _make_child(self, role: str, index: int) -> Child:
        is_engine = role == "engine"
        row = self._board.engine(index) if is_engine else self._board.front_end(index)

        def gone(pid: int) -> None:
            row.clear_row()
            self._run_directory.forget_metrics(pid)

        spawn = (lambda: self._spawn_engine(index)) if is_engine else (lambda: self._spawn_front_end(index))
        return Child(f"{role}-{index}", spawn, gone, lambda: row.heartbeat_at)

    def _spawn_engine(self, index: int) -> subprocess.Popen[bytes]:
        gpu = self._devices[index]
        environment = {"CUDA_VISIBLE_DEVICES": gpu} if gpu else {}
        return self._spawn("engine", index, self._listeners[index].fileno(), environment, f"cuda:{gpu}" if gpu else "")

    def _spawn_front_end(self, index: int) -> subprocess.Popen[bytes]:
        with bind_shared_address(self._address) as listener:
            return self._spawn("front_end", index, listener.fileno(), {"CUDA_VISIBLE_DEVICES": ""}, "")

    def _spawn(
        self, role: str, index: int, listener: int, environment: dict[str, str], device: str
    ) -> subprocess.Popen[bytes]:
        assignment = Assignment.model_validate(
            {
                "code": self._code,
                "role": role,
                "index": index,
                "launcher": os.getpid(),
                "settings": divide_settings(self._settings, self._row_counts.front_ends, usable_cores()).model_copy(
                    update={"port": self._address.where[1]}
                ),
                "sockets": [str(path) for path in self._run_directory.socket_paths(self._row_counts.engines)],
                "board": self._board_fd,
                "front_ends": self._row_counts.front_ends,
                "engines": self._row_counts.engines,
                "listener": listener,
                "device": device,
                "cores_for_pictures": self._cores_for_pictures,
            }
        )
        process = subprocess.Popen(
            [sys.executable, "-m", "service.processes"],
            stdin=subprocess.PIPE,
            env={**os.environ, **environment, **self._run_directory.environment},
            pass_fds=(listener, self._board_fd, self._run_directory.lock),
            start_new_session=True,  # Ctrl-C reaches only the launcher, which ends its processes itself
        )
        assert process.stdin is not None  # noqa: S101 -- stdin=PIPE above
        with suppress(BrokenPipeError), process.stdin:  # if the child was killed at once, the next check finds it
            process.stdin.write(assignment.to_json())
        return process


def launch(settings: Settings, front_ends: int) -> int:
    """Serve with this many front ends until SIGTERM, SIGINT or SIGHUP.

    Returns:
        The exit status: 0 if every process ended cleanly.

    Raises:
        SettingsInvalid: this system does not support workers, or as raised by `check_ports` and `run_preflight`.
    """
    if not sys.platform.startswith("linux"):
        raise SettingsInvalid("--workers needs Linux (memfd, SO_REUSEPORT); leave it out elsewhere")
    check_ports(settings)
    run_preflight(settings)
    with ExitStack() as stack:
        launcher = Launcher(settings, front_ends, stack)
        if settings.metrics_port and not launcher.serve_metrics():
            return 1
        return launcher.run()
