"""Starts the server's processes, and holds what they share: the address, the engines' sockets and the status board.

Front ends listen on separate sockets on one port (SO_REUSEPORT), so a dead one gets no connections. When processes are
restarted and ended is decided in children.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress

import structlog

from service.core.settings import Settings, SettingsInvalid
from service.lifecycle.host import usable_cores
from service.lifecycle.sighup import hangup_signals
from service.preflight import check_ports, run_preflight
from service.processes.launcher.address import bind_shared_address, reserve_address
from service.processes.launcher.child import Child
from service.processes.launcher.children import Children
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
        self._children = Children(
            [self._make_child("engine", index) for index in range(engines)],
            [self._make_child("front_end", index) for index in range(front_ends)],
            settings,
        )

    def run(self) -> int:
        """Serve until signals end the server; returns the exit status, 0 if every process ended cleanly."""
        self._children.start(time.monotonic())
        while not self._children.ended:
            for number, arrived_at in self._signals.wait(_POLL_INTERVAL_S):
                if number != signal.SIGCHLD:
                    self._children.handle_signal(signal.Signals(number), arrived_at)
            self._children.check(time.monotonic())
            self._run_directory.make_again()
        return 0 if self._children.clean else 1

    def serve_metrics(self) -> bool:
        """Serve the metrics of all processes on a port of their own; returns False if it is not available."""
        port = self._settings.metrics_port
        try:
            serve_metrics(self._settings.host, port, self._run_directory.combined_metrics())
        except OSError as error:
            _log.error("metrics port not available", port=port, reason=str(error))
            return False
        return True

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
                "sockets": self._run_directory.socket_paths,
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
            pass_fds=(listener, self._board_fd, *self._run_directory.inherited),
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
