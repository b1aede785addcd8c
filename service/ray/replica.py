"""A replica of Ray Serve: a whole server beside it, reports to the proxies, and what Ray asks about it."""

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
REPORT_EVERY_S = 1.0
QUEUE_SHARE = "queue_share"
"""Name of the value that Ray scales by: the depth of the queue as a share of the depth that is wanted."""
_ANSWER_S = 1.0
_SILENT_S = 30.0
"""Time after which a server that does not answer /livez is replaced."""


class Report(Protocol):
    """Tells one proxy's registrar that a server lives at an address; raises if it cannot be reached in time."""

    def __call__(self, address: str, timeout_s: float) -> None: ...


def reports_to(handles: Sequence[Any]) -> list[Report]:
    """Return a way to report to each registrar, by its handle."""

    def make_report(handle: Any) -> Report:
        def report(address: str, timeout_s: float) -> None:
            handle.report.remote(address).result(timeout_s=timeout_s)

        return report

    return [make_report(handle) for handle in handles]


def node_address() -> str:
    """Return the address under which Ray's other nodes know this one."""
    own_id = ray.get_runtime_context().get_node_id()
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return str(next(node["NodeManagerAddress"] for node in nodes if node["NodeID"] == own_id))


class Replica:
    """A server on a free port of this node, for as long as Ray keeps the replica.

    Args:
        settings: the server's settings, all that differ from their defaults. `host` is the node's address by default.
        queue_depth: samples that may wait for the device before another replica is wanted.
        longest_stop_s: longest time that the server may take to drain.
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
        # a proxy knows a server that lives, as that one can say why it is not ready; Ray waits until it is
        self._server.wait_for("/livez")
        threading.Thread(target=self._report, args=(reports_to(registrars),), name="reports", daemon=True).start()
        self._server.wait_for("/readyz")

    def check_health(self) -> None:
        """Check that the server lives; Ray calls this every few seconds and replaces a replica that raises.

        Raises:
            ServerEnded: the process has ended, as it does when it has lost its GPU.
            TimeoutError: it has not answered for a long time.
        """
        if self._server.ended.is_set():
            raise ServerEnded(f"the server ended with status {self._server.status}; its log says why")
        if self._pulse.silent_s() > _SILENT_S:
            raise TimeoutError(f"the server has not answered for {self._pulse.silent_s():.0f} s")

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Return what Ray scales by; it calls this before each look at the number of replicas."""
        return {QUEUE_SHARE: self._server.queue_depth() / self._queue_depth}

    def __del__(self) -> None:
        """Let the server drain: Ray calls this before it ends the replica, and waits for it."""
        if hasattr(self, "_server"):
            self._server.stop(self._longest_stop_s)
        if hasattr(self, "_stopped"):
            self._stopped.set()

    def _report(self, reports: Sequence[Report]) -> None:
        """Report the server to all proxies repeatedly: a proxy forgets one that is not reported for a while."""
        while not (self._stopped.is_set() or self._server.ended.is_set()):
            if self._server.answers("/livez"):
                self._pulse.beat()
                report_to_all(reports, self._server.address)
            self._stopped.wait(REPORT_EVERY_S)


class Pulse:
    """The time since the server last answered."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._at = clock, clock()

    def beat(self) -> None:
        """Note an answer."""
        self._at = self._clock()

    def silent_s(self) -> float:
        """Return the seconds since the last answer."""
        return self._clock() - self._at


def report_to_all(reports: Sequence[Report], address: str) -> None:
    """Tell all proxies' registrars of a server at once, so that those that are away do not delay the others."""
    with ThreadPoolExecutor(len(reports)) as pool:
        for report in reports:
            pool.submit(_try_to_report, report, address)


def _try_to_report(report: Report, address: str) -> None:
    try:
        report(address, _ANSWER_S)
    except Exception as error:
        _log.warning("a proxy's registrar was not reached", reason=str(error).partition("\n")[0])
