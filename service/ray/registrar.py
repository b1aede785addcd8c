"""Registrar of one HAProxy, placed by Ray on HAProxy's host: replicas report to it, and it writes HAProxy's table."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from service.ray.proxy_table import ProxyTable, plan_changes

_log = structlog.get_logger(__name__)
_POLL_INTERVAL_S = 0.5
_REPORT_VALID_S = 5.0
"""Seconds without a report after which a server is removed from the table, if its health checks fail."""


class ReportedServers:
    """The servers that were reported in the last `_REPORT_VALID_S` seconds. Thread-safe.

    Args:
        clock: monotonic clock, in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._began = clock, clock()
        self._seen: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, address: str) -> None:
        """Record a report of a live server."""
        with self._lock:
            self._seen[address] = self._clock()

    def addresses(self) -> list[str]:
        """Return the addresses of the reported servers, the longest known first."""
        with self._lock:
            now = self._clock()
            self._seen = {address: at for address, at in self._seen.items() if now - at < _REPORT_VALID_S}
            return list(self._seen)

    @property
    def is_complete(self) -> bool:
        """Whether every server has had time to report since the registrar started."""
        return self._clock() - self._began >= _REPORT_VALID_S


class Registrar:
    """Keeps HAProxy's table in line with the replicas' reports, also after HAProxy has restarted.

    HAProxy itself checks the health of the servers in its table. A healthy server stays there even without reports, as
    only the reports may be failing. While the registrar is down, the table does not change.

    Args:
        path: HAProxy's socket for commands.
        clock: monotonic clock, in seconds.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._reported = ReportedServers(clock)
        self._table = ProxyTable(Path(path))
        self._stopped = threading.Event()
        threading.Thread(target=self._follow, name="proxy table", daemon=True).start()

    def report(self, address: str) -> None:
        """Record that there is a live server at an address, HOST:PORT."""
        self._reported.add(address)

    def __del__(self) -> None:
        """Stop; the table stays."""
        self._stopped.set()

    def _follow(self) -> None:
        reached = True
        while not self._stopped.wait(_POLL_INTERVAL_S):
            reason = self._try_to_update()
            if reason and reached:
                _log.error("HAProxy cannot be reached; retrying", reason=reason)
            reached = not reason

    def _try_to_update(self) -> str:
        """Update the table; return the reason if that failed, else ""."""
        try:
            self._update()
        except OSError as error:
            return str(error)
        return ""

    def _update(self) -> None:
        slots, wanted = self._table.slots(), self._reported.addresses()
        for slot, address in plan_changes(wanted, slots).items():
            if address:
                self._table.place(slot, address)
                _log.info("replica added", address=address, slot=slot)
            elif self._reported.is_complete:
                self._table.clear(slot)
                _log.info("replica removed", address=slots[slot].address, slot=slot)
        if len(wanted) > len(slots):
            _log.error("more replicas than slots; raise the number in haproxy.cfg", slots=len(slots))
