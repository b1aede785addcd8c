"""This process's membership in a fleet that shares a PostgreSQL ledger: its lease, its clock and its notifications.

One thread sends heartbeats and listens for notifications, over a connection of its own, so that neither waits for a
busy pool. All times are on the database's clock, because hosts' clocks may differ by minutes.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psycopg
import structlog

from service.ledger.contract import Transaction
from service.ledger.postgres.server import CHANNEL, Connection, PostgresServer

_log = structlog.get_logger(__name__)
LEASE_S = 10.0
_BEATS_PER_LEASE = 5
"""Number of heartbeats per lease."""
_CHECKS_PER_LEASE = 20
"""Number of times per lease that the thread checks whether it should end."""
_RETRY_S = 0.5
_FORGET_AFTER = "1 day"
_HEARTBEAT = (
    "INSERT INTO nodes (id, seen_at) VALUES (%s, clock_timestamp()) "
    "ON CONFLICT (id) DO UPDATE SET seen_at = clock_timestamp() RETURNING extract(epoch FROM seen_at)::float8 AS now"
)


class Node:
    """A process and its lease, which ends `lease_s` after its last heartbeat. Implements `SharedOwner`.

    Args:
        server: the database; opened and closed here.
        new_id: makes the process's id.
        clock: monotonic clock, in seconds.
        lease_s: seconds without a heartbeat after which a process counts as dead.
    """

    def __init__(
        self,
        server: PostgresServer,
        new_id: Callable[[], str],
        clock: Callable[[], float] = time.monotonic,
        lease_s: float = LEASE_S,
    ) -> None:
        self.id = new_id()
        self.server = server
        self.lease_s = lease_s
        self._clock = clock
        self._offset = 0.0
        """Time on the database's clock minus time on `clock`, in seconds."""
        self._heartbeat_at = self._steady_since = 0.0
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ledger-node", daemon=True)

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Connect, take the lease and renew it until `close`. Blocks; raises as `Connections.open` does."""
        self._loop = loop
        self.server.open()
        now = self.server.write(self._take_lease)
        self._heartbeat_at = self._steady_since = self._clock()
        self._offset = now - self._heartbeat_at
        self._thread.start()

    def close(self) -> None:
        """End the lease, so that others continue this process's work at once. Blocks."""
        self._ended.set()
        self._thread.join(self.lease_s)
        with suppress(Exception):  # without this the lease expires
            self.server.write(lambda ledger: ledger.execute("DELETE FROM nodes WHERE id = ?", (self.id,)))
        self.server.close()

    def now(self) -> float:
        """Return the time on the database's clock, in seconds since the epoch."""
        return self._clock() + self._offset

    @property
    def is_steady(self) -> bool:
        """See `SharedOwner`; needed because after a database outage all leases seem to have ended for a moment."""
        now = self._clock()
        return now - self._heartbeat_at < self.lease_s / 2 and now - self._steady_since >= self.lease_s

    def is_alive(self, owner_id: str) -> bool:
        """See `Owner`; every process counts as alive while this one is not steady."""
        if owner_id == self.id or not self.is_steady:
            return True
        alive = "SELECT 1 FROM nodes WHERE id = ? AND seen_at > clock_timestamp() - ? * interval '1 second'"
        return self.server.read(lambda ledger: ledger.execute(alive, (owner_id, self.lease_s)).fetchone()) is not None

    async def changed(self, topic: str, at_most_s: float) -> None:
        """See `SharedOwner`."""
        event = asyncio.Event()
        waiting = self._waiting.setdefault(topic, set())
        waiting.add(event)
        try:
            await asyncio.wait_for(event.wait(), at_most_s)
        except asyncio.TimeoutError:
            return
        finally:
            waiting.discard(event)

    def wake(self, topic: str) -> None:
        """See `SharedOwner`; called on the event loop."""
        for event in self._waiting.get(topic, ()):
            event.set()

    def _take_lease(self, ledger: Transaction) -> float:
        ledger.execute(f"DELETE FROM nodes WHERE seen_at < clock_timestamp() - interval '{_FORGET_AFTER}'")  # noqa: S608 -- ours
        return float(ledger.execute(_HEARTBEAT.replace("%s", "?"), (self.id,)).fetchone()["now"])

    def _run(self) -> None:
        failed = False
        while not self._ended.is_set():
            try:
                with self.server.connect() as connection:
                    connection.execute(f"LISTEN {CHANNEL}".encode())
                    self._send_heartbeat(connection)
                    if failed:
                        _log.info("the database is reachable again", ledger=self.server.address.shown)
                    failed = False
                    self._wake_soon(None)  # for notifications that were missed meanwhile
                    self._listen(connection)
            except psycopg.Error as error:  # noqa: PERF203 -- the loop is for retries
                if not failed:
                    _log.warning(
                        "the database is unreachable; retrying", error=self.server.address.without_secrets(error)
                    )
                failed = True
                self._ended.wait(_RETRY_S)

    def _listen(self, connection: Connection) -> None:
        while not self._ended.is_set():
            for notification in connection.notifies(timeout=self.lease_s / _CHECKS_PER_LEASE):
                self._wake_soon(notification.payload)
            if self._clock() - self._heartbeat_at >= self.lease_s / _BEATS_PER_LEASE:
                self._send_heartbeat(connection)

    def _send_heartbeat(self, connection: Connection) -> None:
        """Send a heartbeat and compare the clocks; a late one, as after a pause of the host, resets `is_steady`."""
        sent = self._clock()
        with self.server.watch.over(connection):
            row = connection.execute(_HEARTBEAT.encode(), (self.id,)).fetchone()
        got = self._clock()
        if row is not None:
            self._offset = row["now"] - (sent + got) / 2
        if got - self._heartbeat_at >= self.lease_s / 2:
            self._steady_since = got
        self._heartbeat_at = sent

    def _wake_soon(self, topic: str | None) -> None:
        """Wake the tasks that wait for the topic; None: for any topic."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                for one in (topic,) if topic else tuple(self._waiting):
                    self._loop.call_soon_threadsafe(self.wake, one)
