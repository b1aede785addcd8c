"""The rule that says when a version that was fetched is served."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class Agreement(Protocol):
    """Decision on the versions that enough hosts have. Versions are texts: `NAME/VERSION@DIGEST`. All methods block."""

    def agreed(self, held: Collection[str]) -> set[str]:
        """Tell the other hosts which versions this one has; returns those of them that may be served.

        Who has told nothing yet is not waited for, so each round begins with this, also with nothing.

        Raises:
            NotReady: code `ledger_unavailable`: it cannot be told now.
        """


class AtOnce:
    """Serves each version as soon as this host has it."""

    def agreed(self, held: Collection[str]) -> set[str]:
        """See `Agreement`."""
        return set(held)
