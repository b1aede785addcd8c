"""Compares the store of reservations with a signed ticket: time to refuse and to readmit a client, and memory.

    .venv/bin/python -m benchmarks.worth.retry_ticket [--refused 10000] [--front-ends 4] [--rounds 15]

The ticket is a sketch (`Tickets`): the promised second and an HMAC over it and the client's flow, 32 characters of the
alphabet of `X-Request-ID`; a server with the same key admits it within its window. Such a server keeps no list, so it
knows neither which tickets were used nor how many are open. Printed: microseconds of CPU time, medians over interleaved
rounds, and MiB with that number of open reservations.
"""

from __future__ import annotations

import argparse
import base64
import hmac
import statistics
import time
import tracemalloc
from collections.abc import Callable
from typing import Protocol

from rich.console import Console
from rich.table import Table

from service.admission.reservation_store import LocalReservationStore, ReservationStore
from service.processes.shared.reservation_store import SharedReservationStore, memory_nbytes

NOW = 1_000_000
FLOW = b"address:127.0.0.1"
"""The client of every request, as admission knows it."""
_EARLY_S, _VALID_S = 1, 15


def due_of(client: int) -> int:
    """Return the second that a client is promised."""
    return NOW + client % 30


class Side(Protocol):
    """A way to keep the promises to refused clients, in the server or with the client."""

    def refuse(self, client: int) -> str:
        """Promise a client a second; returns what it presents when it returns."""

    def readmit(self, presented: str, now: int) -> bool:
        """Return whether the client is admitted."""


class Book:
    """A book of open reservations, by request id."""

    def __init__(self, book: ReservationStore) -> None:
        self.book = book

    def refuse(self, client: int) -> str:
        key = f"{client:032x}"
        if self.book.due_second(key) is None:
            self.book.add(key, due_of(client))
        return key

    def readmit(self, presented: str, now: int) -> bool:
        due = self.book.due_second(presented)
        if due is None or not due - _EARLY_S <= now <= due + _VALID_S:
            return False
        self.book.remove(presented)
        return True


class Tickets:
    """Signed tickets: 5 bytes for the second, 19 bytes of an HMAC-SHA-256."""

    def __init__(self, key: bytes = b"k" * 32) -> None:
        self.key = key

    def refuse(self, client: int) -> str:
        due = due_of(client).to_bytes(5, "big")
        return base64.urlsafe_b64encode(due + self._seal(due)).decode()

    def readmit(self, presented: str, now: int) -> bool:
        raw = base64.urlsafe_b64decode(presented)
        due = int.from_bytes(raw[:5], "big")
        in_time = due - _EARLY_S <= now <= due + _VALID_S
        return in_time and hmac.compare_digest(raw[5:], self._seal(raw[:5]))

    def _seal(self, due: bytes) -> bytes:
        return hmac.digest(self.key, due + FLOW, "sha256")[:19]


def sides(front_ends: int) -> dict[str, Callable[[], Side]]:
    """Return the ways that are compared."""
    return {
        "book of one process": lambda: Book(LocalReservationStore()),
        f"book of {front_ends} front ends": lambda: Book(
            SharedReservationStore(memoryview(bytearray(memory_nbytes(front_ends))), 0)
        ),
        "signed ticket": Tickets,
    }


def measured(make: Callable[[], Side], clients: int) -> tuple[float, float]:
    """Return microseconds to refuse and to readmit a client."""
    side = make()
    begun = time.thread_time()
    presented = [side.refuse(client) for client in range(clients)]
    refused = time.thread_time()
    admitted = sum(side.readmit(one, due_of(client)) for client, one in enumerate(presented))
    ended = time.thread_time()
    if admitted < 0.99 * clients:
        raise SystemExit(f"{clients - admitted} of {clients} were not readmitted")
    return (refused - begun) / clients * 1e6, (ended - refused) / clients * 1e6


def memory_mib(make: Callable[[], Side], clients: int) -> float:
    """Return the memory that the open reservations of so many clients take."""
    tracemalloc.start()
    side = make()
    for client in range(clients):
        side.refuse(client)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return held / 2**20


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--refused", type=int, default=10_000, help="clients that are refused, then return")
    parser.add_argument("--front-ends", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    table = Table("", "refuse, µs", "readmit, µs", "MiB")
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in sides(options.front_ends)}
    for _ in range(options.rounds):
        for name, make in sides(options.front_ends).items():
            seen[name].append(measured(make, options.refused))
    for name, make in sides(options.front_ends).items():
        refuse, readmit = (statistics.median(column) for column in zip(*seen[name], strict=True))
        table.add_row(name, f"{refuse:.2f}", f"{readmit:.2f}", f"{memory_mib(make, options.refused):.2f}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
