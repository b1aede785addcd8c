"""A replica of Ray Serve: it runs a whole server as a process, reports it to the proxies, and answers Ray's checks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import ray
import structlog

from service.ray.server_process import ServerEnded, ServerProcess

_log = structlog.get_logger(__name__)
REPORT_INTERVAL_S = 1.0
QUEUE_SHARE = "queue_share"
"""Name of the metric by which Ray scales: the queue's depth divided by the wanted depth."""
_REPORT_TIMEOUT_S = 1.0
_MAX_SILENCE_S = 30.0
"""Seconds without an answer to /livez after which a server is replaced."""


class Report(Protocol):
    """Reports a live server's address to one proxy's registrar; raises if the registrar cannot be reached in time."""

    def __call__(self, address: str, timeout_s: float) -> None: ...


def reports_to(handles: Sequence[Any]) -> list[Report]:
    """Return a function that reports to each registrar; `handles`: Ray Serve's handles of the registrars."""

    def make_report(handle: Any) -> Report:
        def report(address: str, timeout_s: float) -> None:
            handle.report.remote(address).result(timeout_s=timeout_s)

        return report

    return [make_report(handle) for handle in handles]


def node_address() -> str:
    """Return this node's address as Ray's other nodes know it."""
    own_id = ray.get_runtime_context().get_node_id()
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return str(next(node["NodeManagerAddress"] for node in nodes if node["NodeID"] == own_id))


class Replica:
    """A server on a free port of this node, which runs for as long as Ray keeps the replica.

    Args:
        settings: the server's settings that differ from their defaults; without `host`, it is the node's address.
        queue_depth: number of samples that may wait for the device before another replica is wanted.
        longest_stop_s: longest time that the server may take to drain and end, in seconds.
        registrars: handles of the proxies' registrars.

    Raises:
        ServerEnded: the server did not start; its log says why.
    """

    def __init__(
        self, settings: Mapping[str, Any], queue_depth: float, longest_stop_s: float, registrars: Sequence[Any]
    ) -> None:
        self._queue_depth, self._longest_stop_s = queue_depth, longest_stop_s
        self._server = ServerProcess(settings, settings.get("host") or node_address())
        self._stopped = threading.Event()
        self._pulse = Pulse(time.monotonic)
        # reported to proxies once it is live, as it can answer why it is not ready; Ray waits until it is ready
        self._server.wait_for("/livez")
        threading.Thread(target=self._report, args=(reports_to(registrars),), name="reports", daemon=True).start()
        self._server.wait_for("/readyz")

    def check_health(self) -> None:
        """Check that the server lives; Ray calls this every few seconds and replaces a replica that raises.

        Raises:
            ServerEnded: the process has ended, as it does when it has lost its GPU.
            TimeoutError: it has not answered /livez for `_MAX_SILENCE_S` seconds.
        """
        if self._server.ended.is_set():
            raise ServerEnded(f"the server ended with status {self._server.status}; its log says why")
        if self._pulse.silent_s() > _MAX_SILENCE_S:
            raise TimeoutError(f"the server has not answered for {self._pulse.silent_s():.0f} s")

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Return the metric by which Ray scales; Ray calls this before each decision on the number of replicas."""
        return {QUEUE_SHARE: self._server.queue_depth() / self._queue_depth}

    def __del__(self) -> None:
        """Drain and end the server. Ray calls this before it ends the replica, and waits until it returns."""
        if hasattr(self, "_server"):
            self._server.stop(self._longest_stop_s)
        if hasattr(self, "_stopped"):
            self._stopped.set()

    def _report(self, reports: Sequence[Report]) -> None:
        """Report the server to all proxies every second, as registrars forget servers without recent reports."""
        while not (self._stopped.is_set() or self._server.ended.is_set()):
            if self._server.answers("/livez"):
                self._pulse.beat()
                report_to_all(reports, self._server.address)
            self._stopped.wait(REPORT_INTERVAL_S)


class Pulse:
    """The time since the server last answered."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._at = clock, clock()

    def beat(self) -> None:
        """Record an answer."""
        self._at = self._clock()

    def silent_s(self) -> float:
        """Return the seconds since the last answer."""
        return self._clock() - self._at


def report_to_all(reports: Sequence[Report], address: str) -> None:
    """Report a server to all proxies' registrars concurrently, so that unreachable ones do not delay the others."""
    with ThreadPoolExecutor(len(reports)) as pool:
        for report in reports:
            pool.submit(_try_to_report, report, address)


def _try_to_report(report: Report, address: str) -> None:
    try:
        report(address, _REPORT_TIMEOUT_S)
    except Exception as error:
        _log.warning("a proxy's registrar could not be reached", reason=str(error).partition("\n")[0])
