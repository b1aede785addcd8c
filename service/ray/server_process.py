"""The server process of a replica: start of `retouch serve` on a free port, probes, metrics and stop."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from service.core.addresses import with_port
from service.core.settings import load_settings

_POLL_INTERVAL_S = 0.1
_REQUEST_TIMEOUT_S = 2.0
"""Time limit of a probe, or of reading the metrics, in seconds."""
_DEPTH = "retouch_queue_depth"


class ServerEnded(RuntimeError):
    """The server's process has ended; its log says why."""


class ServerProcess:
    """`retouch serve` on a free port of an address.

    A thread starts the process and waits for its end, because the kernel kills the process when the thread that
    started it ends (`__main__.py`).

    Args:
        settings: the server's settings; the others come from this node's environment. `host` and all ports are
            replaced, because a node may have several servers. If API keys are set, here or in the environment, metrics
            get a port of their own, as the main port would require a key. gRPC is off: the proxies do not forward it.
        host: address to listen on, one of this host's.

    Raises:
        SettingsInvalid: a setting is unknown or out of range, here or in this node's environment.
    """

    def __init__(self, settings: Mapping[str, Any], host: str) -> None:
        merged = load_settings(environ={**os.environ, **_environ(settings)})
        self._reserved = ExitStack()
        port = self._reserve_port(host)
        chosen = {**settings, "host": host, "port": port, "grpc_port": 0}
        chosen["metrics_port"] = self._reserve_port(host) if merged.keys_file or merged.metrics_port else 0
        self._environ = _environ(chosen)
        self.address = with_port(host, port)
        self._metrics = with_port(host, chosen["metrics_port"] or port)
        # one client for all probes, as creating one takes 20 ms; it keeps no connections, so it need not be closed
        no_connections = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.Client(timeout=_REQUEST_TIMEOUT_S, trust_env=False, limits=no_connections)
        self._process: subprocess.Popen[bytes] | None = None
        self._started, self.ended = threading.Event(), threading.Event()
        threading.Thread(target=self._run, name="server process", daemon=True).start()
        self._started.wait()

    @property
    def status(self) -> int | None:
        """The exit status of the ended process; None while it runs, or if it could not be started."""
        return None if self._process is None else self._process.poll()

    def answers(self, path: str) -> bool:
        """Return whether a GET of the path is answered with 200."""
        try:
            return self._http.get(f"http://{self.address}{path}").status_code == 200
        except httpx.HTTPError:
            return False

    def wait_for(self, path: str) -> None:
        """Wait until a GET of the path is answered with 200; no time limit, as building engines can take minutes.

        Raises:
            ServerEnded: the process ended.
        """
        while not self.answers(path):
            if self.ended.wait(_POLL_INTERVAL_S):
                raise ServerEnded(f"the server ended with status {self.status}; its log says why")

    def queue_depth(self) -> float:
        """Return the number of samples that wait for the device.

        Raises:
            httpx.HTTPError: the metrics cannot be read now.
            LookupError: the metrics do not have it.
        """
        reply = self._http.get(f"http://{self._metrics}/metrics").raise_for_status()
        return read_depth(reply.text)

    def stop(self, longest_s: float) -> None:
        """Drain the server and wait for its end; kill it after `longest_s` seconds. Does nothing if it has ended."""
        self._signal(signal.SIGTERM)
        if not self.ended.wait(longest_s):
            self._signal(signal.SIGKILL)
            self.ended.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)  # does nothing if the process has ended

    def _run(self) -> None:
        try:
            with suppress(OSError):  # `status` stays None
                self._process = subprocess.Popen(  # noqa: S603 -- our own program
                    [sys.executable, "-m", "service.ray", f"{os.getpid()}"], env={**os.environ, **self._environ}
                )
            self._started.set()
            if self._process is not None:
                self._process.wait()
        finally:
            self._reserved.close()
            self.ended.set()

    def _reserve_port(self, host: str) -> int:
        """Return a free port, reserved until the server has ended: a bound socket with SO_REUSEADDR admits only it."""
        family, kind, protocol, _, where = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        bound = self._reserved.enter_context(socket.socket(family, kind, protocol))
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(where)
        port: int = bound.getsockname()[1]
        return port


def read_depth(metrics: str) -> float:
    """Return the number of samples that wait for the device, from the text of a server's metrics.

    Raises:
        LookupError: the metrics do not have it, which does not mean that the queue is empty.
    """
    for family in text_string_to_metric_families(metrics):
        if family.name == _DEPTH:
            return sum(sample.value for sample in family.samples)
    raise LookupError(f"the server's metrics have no {_DEPTH}: server and replica are of different versions")


def _environ(settings: Mapping[str, Any]) -> dict[str, str]:
    return {f"RETOUCH_{name.upper()}": str(value) for name, value in settings.items()}
