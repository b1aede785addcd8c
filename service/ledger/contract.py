"""Contract of the ledger: transactions, and the connections that run them, for SQLite and PostgreSQL alike.

The tables' statements are SQL that both databases accept, with `?` as the placeholder of a value; `Transaction` has the
few parts that differ. Rows are read by column name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from service.core.errors import NotReady

T = TypeVar("T")


class Rows(Protocol):
    """Result of a statement: the rows that it found, or the number of rows that it changed."""

    @property
    def rowcount(self) -> int:
        """Number of rows that were inserted, changed or deleted."""

    def fetchone(self) -> Any:
        """Return the next row; None if there is none."""

    def fetchall(self) -> list[Any]:
        """Return all remaining rows."""

    def __iter__(self) -> Iterator[Any]: ...


class Transaction(Protocol):
    """A transaction of the ledger."""

    @property
    def skip_locked(self) -> str:
        """Suffix of a SELECT that locks its rows and skips those locked by other transactions; empty for SQLite."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        """Run a statement."""

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Run a statement for each row of values."""

    def notify(self, topic: str) -> None:
        """Wake the processes that wait for the topic, once the transaction is committed; SQLite does nothing."""


class Connections(ABC):
    """Connections to one ledger. Thread-safe; all methods block. Readers do not wait for writers."""

    max_at_once: int = 1
    """Largest useful number of concurrent transactions of each kind, reading and writing."""
    refusal: str = ""
    """Why the ledger cannot be used until it is repaired on this host, and how to repair it. Empty otherwise, also
    while a database cannot be reached."""

    @abstractmethod
    def open(self) -> None:
        """Connect, and create the tables if they are missing.

        Raises:
            SettingsInvalid: the ledger cannot be opened, or is not a ledger.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connections. May be called twice."""

    @abstractmethod
    def separate(self) -> Connections:
        """Return connections for long reads, which then delay no other work; the caller opens and closes them."""

    @abstractmethod
    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work`, which only reads, in a transaction; it may be called again after an error.

        Raises:
            NotReady: code `ledger_unavailable`: the ledger cannot be read now.
        """

    @abstractmethod
    def write(self, work: Callable[[Transaction], T], *, synced: bool = False) -> T:
        """Run `work` in one transaction; it may be called again after an error.

        Args:
            work: the function that reads and writes.
            synced: whether the commit must survive a power failure, too.

        Raises:
            NotReady: code `ledger_unavailable`; nothing was written, unless the connection broke during the commit.
        """

    def write_removal(self, work: Callable[[Transaction], T], *, synced: bool = False) -> T:
        """Run `work`, which belongs to the removal of data, as `write` does; on a full disk it uses reserved space."""
        return self.write(work, synced=synced)

    def restore_reserve(self) -> None:  # noqa: B027 -- a database has no disk of ours
        """Reserve space for `write_removal` again after it was used; does nothing while the disk is full."""


class Owner(Protocol):
    """This process among those that share the ledger."""

    @property
    def id(self) -> str:
        """Id of this process, which no other process has or had."""

    def is_alive(self, owner_id: str) -> bool:
        """Return whether the process with that id still runs. Blocks.

        Raises:
            NotReady: code `ledger_unavailable`: the ledger cannot be read now.
        """


class SharedOwner(Owner, Protocol):
    """This process among those of all hosts, which have leases on the database's clock."""

    @property
    def lease_s(self) -> float:
        """Seconds after its last heartbeat from which a process counts as dead."""

    @property
    def is_steady(self) -> bool:
        """Whether this process's heartbeats have arrived for long enough that others' missing ones mean their death."""

    async def changed(self, topic: str, at_most_s: float) -> None:
        """Wait for a notification of that topic, at most `at_most_s` seconds."""

    def wake(self, topic: str) -> None:
        """Wake the tasks of this process that wait for the topic."""


def unavailable(reason: object) -> NotReady:
    """Return the error for a ledger that cannot be read or written now."""
    return NotReady(f"the ledger cannot be used now ({reason}); try again later", code="ledger_unavailable")


def named(values: Sequence[Any]) -> str:
    """Return placeholders for SQL's `IN`: `(?, ?)` for two values, `(NULL)` for none; at most 32,000 values."""
    return f"({', '.join('?' * len(values)) or 'NULL'})"
