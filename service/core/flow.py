"""Flows: one client at one priority. Requests of one flow are served in the order of their arrival."""

from __future__ import annotations

from typing import NamedTuple

MAX_PRIORITY = 9
NORMAL_PRIORITY = 5
PRIORITY_NAMES = {"low": 2, "normal": NORMAL_PRIORITY, "high": 8}


class Flow(NamedTuple):
    """A client and the priority of its requests."""

    client: str = ""
    """The client's API key or address."""
    priority: int = NORMAL_PRIORITY
    """Priority, 0 to 9, the highest first; each level has twice the share of the one below."""

    @property
    def owner(self) -> str:
        """The owner of the results of its requests: the id of the client's API key; empty if no key was required."""
        return owner_of(self.client)

    @property
    def weight(self) -> float:
        """The flow's share of the engine, relative to 1.0 for the normal priority."""
        return 2.0 ** (self.priority - NORMAL_PRIORITY)


def owner_of(client: str) -> str:
    """The owner of a client's results: the id of its API key; empty for a client without one."""
    kind, _, key_id = client.partition(":")
    return key_id if kind == "key" else ""


ANYONE = Flow()
