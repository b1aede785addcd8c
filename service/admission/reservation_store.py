"""Storage of open reservations: when each refused client should retry, in whole seconds on the server's clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Protocol


class ReservationStore(Protocol):
    """Reservations that have not been redeemed."""

    def add(self, key: Hashable, due: int) -> None:
        """Store a reservation for second `due`; there must be none with this key."""

    def due_second(self, key: Hashable) -> int | None:
        """The second that a reservation is for; None if the key has no reservation."""

    def remove(self, key: Hashable) -> None:
        """Remove a reservation, which must exist."""

    def expected_in_second(self, second: int) -> int:
        """The number of reservations for that second."""

    def expire(self, before: int) -> int:
        """Remove the reservations for seconds before `before`, and return their number."""


class LocalReservationStore:
    """Reservations of a server with one process, in a dict. Used on the event loop only."""

    def __init__(self) -> None:
        self._due: dict[Hashable, int] = {}
        self._expected: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, key: Hashable, due: int) -> None:
        """See `ReservationStore.add`."""
        self._due[key] = due
        self._expected[due] += 1

    def due_second(self, key: Hashable) -> int | None:
        """See `ReservationStore.due_second`."""
        return self._due.get(key)

    def remove(self, key: Hashable) -> None:
        """See `ReservationStore.remove`."""
        self._delete(key)

    def expected_in_second(self, second: int) -> int:
        """See `ReservationStore.expected_in_second`."""
        return self._expected[second]

    def expire(self, before: int) -> int:
        """See `ReservationStore.expire`."""
        late = [key for key, due in self._due.items() if due < before]
        for key in late:
            self._delete(key)
        return len(late)

    def _delete(self, key: Hashable) -> None:
        due = self._due.pop(key)
        self._expected[due] -= 1
        if not self._expected[due]:
            del self._expected[due]
