"""The ledger as a PostgreSQL database: a pool of connections, and quick failure while the database is unreachable."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool, PoolTimeout

from service.core.settings import SettingsInvalid
from service.ledger.contract import Connections, Transaction, unavailable
from service.ledger.postgres.address import Address
from service.ledger.postgres.migrating import migrate
from service.ledger.postgres.overdue import ConnectionHung, OverdueWatch

CHANNEL = "retouch"
"""PostgreSQL's channel for all notifications; the payload is the topic."""
_MAX_CONNECTIONS = 8
_POOL_TIMEOUT_S = 2.0
"""Longest wait for a connection from the pool, in seconds."""
_PAUSE_S = 2 * _POOL_TIMEOUT_S
"""A wait that exceeded its limit by this factor shows that this process was paused meanwhile."""
_UNREACHABLE_S = 0.5
"""Seconds in which every transaction is refused at once, after the database could not be reached."""
_IDLE_S = 60.0
_OVERDUE_S = 12.0
"""Longest time of a transaction in seconds; longer than the database's limit for a statement."""
Connection = psycopg.Connection[dict[str, Any]]
T = TypeVar("T")


class PostgresServer(Connections):
    """A pool of connections to the database, and the migrations of its tables.

    Args:
        address: address of the database.
        clock: monotonic clock, in seconds.
        overdue_s: seconds after which a connection without an answer is closed.
    """

    max_at_once = 4

    def __init__(
        self, address: Address, clock: Callable[[], float] = time.monotonic, overdue_s: float = _OVERDUE_S
    ) -> None:
        self.address = address
        self.watch = OverdueWatch(overdue_s, clock)
        self._clock = clock
        self._unreachable_until = 0.0
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            address.conninfo,
            connection_class=cast("type[Connection]", psycopg.Connection),
            kwargs={"autocommit": True, "row_factory": dict_row},
            min_size=1,
            max_size=_MAX_CONNECTIONS,
            timeout=_POOL_TIMEOUT_S,
            max_idle=_IDLE_S,
            reconnect_timeout=0.0,  # the next transaction tries again and reports the failure
            open=False,
            name="ledger",
        )

    def connect(self) -> Connection:
        """Open a connection outside the pool, such as one that listens for notifications.

        Raises:
            psycopg.Error: the database cannot be reached.
        """
        return psycopg.connect(self.address.conninfo, autocommit=True, row_factory=dict_row)

    def open(self) -> None:
        """See `Connections`; the tables are migrated to this version."""
        # the code that requests a connection reports its failure
        logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)
        try:
            with self.connect() as connection:
                migrate(connection)
        except psycopg.errors.LockNotAvailable:
            raise SettingsInvalid(
                f"the ledger {self.address.shown} cannot be migrated: a transaction has used its tables for over a "
                "minute; wait for it or end it (pg_stat_activity shows it), and start again"
            ) from None
        except psycopg.Error as error:
            reason = self.address.without_secrets(error)
            raise SettingsInvalid(
                f"the ledger {self.address.shown} cannot be used ({reason}); check ledger_url, and that the database "
                "runs and its user may create tables"
            ) from None
        self._pool.open()
        self.watch.start()

    def close(self) -> None:
        """See `Connections`."""
        self._pool.close()
        self.watch.close()

    def separate(self) -> Connections:
        """See `Connections`; the pool is shared, as it has enough connections."""
        return _Shared(self)

    def read(self, work: Callable[[Transaction], T]) -> T:
        """See `Connections`."""
        return self._run(work, writing=False)

    def write(self, work: Callable[[Transaction], T], *, synced: bool = False) -> T:  # noqa: ARG002 -- each commit is
        """See `Connections`; each commit is synced, as the database is configured."""
        return self._run(work, writing=True)

    def _run(self, work: Callable[[Transaction], T], *, writing: bool) -> T:
        if self._clock() < self._unreachable_until:
            raise unavailable("the database cannot be reached")
        try:
            return self._try(work, writing=writing, again=True)
        except psycopg.Error as error:
            if isinstance(error, (PoolTimeout, ConnectionHung)):  # other errors affect only one connection or statement
                self._unreachable_until = self._clock() + _UNREACHABLE_S
            if isinstance(error, (ConnectionHung, psycopg.errors.ReadOnlySqlTransaction)):
                self._pool.drain()  # the idle connections also hang or refuse writes
            reason = "the database cannot be reached" if isinstance(error, PoolTimeout) else error
            raise unavailable(self.address.without_secrets(reason)) from None

    def _try(self, work: Callable[[Transaction], T], *, writing: bool, again: bool) -> T:
        """Run `work`; with `again`, retry it once after a failure that is safe and useful to retry.

        That is: the connection broke, or the transaction was rolled back, before its commit began; the pool timed out
        because this process was paused while it waited; or a newer server has added columns since the connection
        prepared its statements.
        """
        committing, broken = False, False
        started_at = self._clock()
        try:
            with self._pool.connection() as connection, self.watch.over(connection):
                try:
                    if not writing:
                        return work(_PostgresTransaction(connection))
                    with connection.transaction():
                        done = work(_PostgresTransaction(connection))
                        committing = True
                    return done
                finally:
                    broken = connection.broken
        except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.errors.FeatureNotSupported) as error:
            paused = isinstance(error, PoolTimeout) and self._clock() - started_at > _PAUSE_S
            outdated = isinstance(error, psycopg.errors.FeatureNotSupported)  # cached plan must not change result type
            repeatable = broken or paused or outdated or isinstance(error, psycopg.errors.TransactionRollback)
            if committing or isinstance(error, ConnectionHung) or not (again and repeatable):
                raise
        if outdated:
            self._pool.drain()  # the other connections have outdated statements, too
        if broken:
            self._pool.check()  # the database restarted: the other idle connections are broken, too
        return self._try(work, writing=writing, again=False)


class _PostgresTransaction:
    """A connection as a `Transaction`; a reading one commits each statement by itself."""

    skip_locked = "FOR UPDATE SKIP LOCKED"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> psycopg.Cursor[dict[str, Any]]:
        """See `Transaction`."""
        return self._connection.execute(_in_dialect(statement), values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> None:
        """See `Transaction`."""
        with self._connection.cursor() as cursor:
            cursor.executemany(_in_dialect(statement), rows)

    def notify(self, topic: str) -> None:
        """See `Transaction`."""
        self._connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, topic))


class _Shared(Connections):
    """The server's pool for another user, which neither opens nor closes it."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self.max_at_once = server.max_at_once

    def open(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def separate(self) -> Connections:
        """See `Connections`."""
        return self

    def read(self, work: Callable[[Transaction], T]) -> T:
        """See `Connections`."""
        return self._server.read(work)

    def write(self, work: Callable[[Transaction], T], *, synced: bool = False) -> T:
        """See `Connections`."""
        return self._server.write(work, synced=synced)


@lru_cache(maxsize=256)
def _in_dialect(statement: str) -> bytes:
    """Return the statement with psycopg's placeholders (`%s`)."""
    return statement.replace("%", "%%").replace("?", "%s").encode()
