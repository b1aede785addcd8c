"""The rule that says when a version that was fetched is served."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class Agreement(Protocol):
    """Decision on the versions that enough hosts have. Versions are texts: `NAME/VERSION@DIGEST`. All methods block."""

    def agreed(self, held: Collection[str]) -> set[str]:
        """Announce the versions that this host has to the others; returns those that may be served.

        A host that has announced nothing yet is not waited for, so each round begins with this, even with no version.

        Raises:
            NotReady: code `ledger_unavailable`: they cannot be announced now.
        """


class NoAgreement:
    """The rule of a single host: each version is served as soon as it is here."""

    def agreed(self, held: Collection[str]) -> set[str]:
        """See `Agreement`."""
        return set(held)
