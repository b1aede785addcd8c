"""Registrar of one HAProxy: Ray places it on that HAProxy's host, replicas report to it, it writes the table."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from service.ray.proxy_table import ProxyTable, plan_changes

_log = structlog.get_logger(__name__)
_LOOK_EVERY_S = 0.5
_FORGET_S = 5.0
"""Time after which a server that is not reported any more is taken out of the table, if its health checks fail."""


class Reported:
    """The servers that were reported lately.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._began = clock, clock()
        self._seen: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, address: str) -> None:
        """Note that a server lives."""
        with self._lock:
            self._seen[address] = self._clock()

    def addresses(self) -> list[str]:
        """Return the reported servers, the longest known first."""
        with self._lock:
            now = self._clock()
            self._seen = {address: at for address, at in self._seen.items() if now - at < _FORGET_S}
            return list(self._seen)

    @property
    def complete(self) -> bool:
        """Whether every server has had the time to report."""
        return self._clock() - self._began >= _FORGET_S


class Registrar:
    """Keeps HAProxy's table equal to what replicas report, also after HAProxy was started again.

    Health is HAProxy's own business: it checks the servers in its table, and a healthy one stays there, as its reports
    may be what fails. A registrar that is away changes nothing.

    Args:
        path: HAProxy's socket for commands.
    """

    def __init__(self, path: str) -> None:
        self._reported = Reported(time.monotonic)
        self._table = ProxyTable(Path(path))
        self._stopped = threading.Event()
        threading.Thread(target=self._follow, name="proxy table", daemon=True).start()

    def report(self, address: str) -> None:
        """Note that a server lives at an address."""
        self._reported.add(address)

    def __del__(self) -> None:
        """Stop; the table stays."""
        self._stopped.set()

    def _follow(self) -> None:
        reached = True
        while not self._stopped.wait(_LOOK_EVERY_S):
            reason = self._try_to_update()
            if reason and reached:
                _log.error("HAProxy cannot be reached; it is tried again", reason=reason)
            reached = not reason

    def _try_to_update(self) -> str:
        """Update the table; return why that failed, or "" if it did not."""
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
            elif self._reported.complete:
                self._table.clear(slot)
                _log.info("replica removed", address=slots[slot].address, slot=slot)
        if len(wanted) > len(slots):
            _log.error("more replicas than slots; raise the number in haproxy.cfg", slots=len(slots))
