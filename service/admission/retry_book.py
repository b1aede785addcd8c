"""Where it is written down who was told to come back when. Seconds are whole ones, on the server's clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Protocol


class Book(Protocol):
    """Appointments that were made and not kept yet."""

    def add(self, who: Hashable, due: int) -> None:
        """`who` was told to come then, and is not in the book."""

    def due(self, who: Hashable) -> int | None:
        """When that one was told to come; None of who was not, or has come."""

    def take(self, who: Hashable) -> None:
        """`who` has come, and is in the book."""

    def expected(self, second: int) -> int:
        """How many are still to come of those who were told that second."""

    def forget(self, before: int) -> int:
        """Strike out whoever was told to come before that second; how many of them never came."""


class OwnBook:
    """The book of a server that is one process. Used on its event loop."""

    def __init__(self) -> None:
        self._due: dict[Hashable, int] = {}
        self._expected: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, who: Hashable, due: int) -> None:
        """As `Book.add`."""
        self._due[who] = due
        self._expected[due] += 1

    def due(self, who: Hashable) -> int | None:
        """As `Book.due`."""
        return self._due.get(who)

    def take(self, who: Hashable) -> None:
        """As `Book.take`."""
        self._strike(who)

    def expected(self, second: int) -> int:
        """As `Book.expected`."""
        return self._expected[second]

    def forget(self, before: int) -> int:
        """As `Book.forget`."""
        late = [who for who, due in self._due.items() if due < before]
        for who in late:
            self._strike(who)
        return len(late)

    def _strike(self, who: Hashable) -> None:
        due = self._due.pop(who)
        self._expected[due] -= 1
        if not self._expected[due]:
            del self._expected[due]
