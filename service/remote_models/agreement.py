"""The rule that decides when a fetched version may be served."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class Agreement(Protocol):
    """Agreement of hosts on the versions to serve. Versions are strings, `NAME/VERSION@DIGEST`. All methods block."""

    def agreed(self, versions: Collection[str]) -> set[str]:
        """Announce to the other hosts the versions that this host has, and return the versions that may be served.

        The others do not wait for a host that has never called this, so each round begins with a call, even if
        `versions` is empty.

        Raises:
            NotReady: code `ledger_unavailable`: the versions cannot be announced now.
        """


class NoAgreement:
    """The rule of a single host: each version is served as soon as it is fetched."""

    def agreed(self, versions: Collection[str]) -> set[str]:
        """See `Agreement`."""
        return set(versions)
