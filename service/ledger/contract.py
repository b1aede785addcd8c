"""Contract of the ledger: transactions, and connections that run them, whatever the database.

The tables' statements are SQL that SQLite and PostgreSQL both accept, with `?` for values; `Transaction` has the few
parts that differ. Rows are read by the names of their columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from service.core.errors import NotReady

T = TypeVar("T")


class Rows(Protocol):
    """Rows that a statement found, or the number of rows that it changed."""

    @property
    def rowcount(self) -> int:
        """Number of rows that were inserted, changed or deleted."""

    def fetchone(self) -> Any:
        """The next row; None if there is none."""

    def fetchall(self) -> list[Any]:
        """All rows that are left."""

    def __iter__(self) -> Iterator[Any]: ...


class Transaction(Protocol):
    """A transaction of the ledger."""

    @property
    def skip_locked(self) -> str:
        """The end of a SELECT whose rows no other transaction may take meanwhile."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        """Run a statement."""

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> object:
        """Run a statement for each row of values."""

    def notify(self, topic: str) -> None:
        """Wake the processes of other hosts that wait for the topic, once the transaction is committed."""


class Connections(ABC):
    """Connections to one ledger. Thread-safe; all methods block. A reading thread does not wait for a writing one."""

    max_at_once: int = 1
    """Most transactions of each kind, reading and writing, that are useful to run concurrently."""
    refusal: str = ""
    """Why the ledger cannot be used until it is repaired on this host, and how; empty while a database is only away."""

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
        """Connections to the same ledger for long reads, which delay no others. The caller opens and closes them."""

    @abstractmethod
    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run `work`, which only reads, and may be repeated.

        Raises:
            NotReady: code `ledger_unavailable`: the ledger cannot be read now.
        """

    @abstractmethod
    def write(self, work: Callable[[Transaction], T], *, synced: bool = False) -> T:
        """Run `work`, which may be repeated, in one transaction; with `synced` it survives a power failure, too.

        Raises:
            NotReady: code `ledger_unavailable`; nothing was written, unless the connection broke during the commit.
        """


class Owner(Protocol):
    """This process among those that share the ledger."""

    @property
    def id(self) -> str:
        """Its id, which no other process has or had."""

    def is_alive(self, owner_id: str) -> bool:
        """Whether the process with that id still runs. Blocks.

        Raises:
            NotReady: code `ledger_unavailable`: the ledger cannot be read now.
        """


class SharedOwner(Owner, Protocol):
    """This process among those of all hosts, which have leases on the database's clock."""

    @property
    def lease_s(self) -> float:
        """Time after its last heartbeat from which a process counts as dead."""

    @property
    def is_steady(self) -> bool:
        """Whether its own heartbeats have arrived for long enough to judge the missing ones of others."""

    async def changed(self, topic: str, at_most_s: float) -> None:
        """Wait for a notification of that topic, `at_most_s` seconds."""

    def wake(self, topic: str) -> None:
        """Wake those of this process that wait for the topic."""


def unavailable(reason: object) -> NotReady:
    """The error for a ledger that cannot be read or written now."""
    return NotReady(f"the ledger cannot be used now ({reason}); try again later", code="ledger_unavailable")


def named(values: Sequence[Any]) -> str:
    """Return a list for `IN` of as many values, `(?, ?)`: at most 32,000, and `(NULL)` for none."""
    return f"({', '.join('?' * len(values)) or 'NULL'})"
