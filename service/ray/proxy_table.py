"""HAProxy's table of servers, read and written over its runtime API (docker/ray/haproxy.cfg).

The table has a fixed number of slots (`server-template`), which are the same in its two sections: `replicas`, whose
servers are health-checked with /readyz, and `unready`, to which requests go when no server in `replicas` is ready.
"""

from __future__ import annotations

import csv
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

READY, UNREADY = _SECTIONS = ("replicas", "unready")
_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class ProxySlot:
    """A slot of the table.

    Args:
        address: address of its server; "" if the slot is free.
        down: whether the server's health checks fail.
    """

    address: str = ""
    down: bool = True


def plan_changes(wanted: Collection[str], slots: Mapping[str, ProxySlot]) -> dict[str, str]:
    """Return the slots to change, with their new addresses; "" empties a slot.

    A server that HAProxy finds healthy keeps its slot even if it is not wanted, as only its reports may be lost.

    Args:
        wanted: addresses of the reported servers. Those for which no slot is free are left out.
        slots: all slots, by name.
    """
    left = {name: "" for name, slot in slots.items() if slot.address and slot.down and slot.address not in wanted}
    free = [name for name, slot in slots.items() if not slot.address] + list(left)
    known = {slot.address for slot in slots.values()}
    new = [address for address in wanted if address not in known]
    return left | dict(zip(free, new, strict=False))


class ProxyTable:
    """The table of the HAProxy that listens for commands on a socket of this host.

    All methods raise OSError if HAProxy cannot be reached, for example while it restarts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def slots(self) -> dict[str, ProxySlot]:
        """Return all slots, by name."""
        lines = self._ask(f"show stat {READY} 4 -1").removeprefix("# ").splitlines()
        rows = csv.DictReader(line for line in lines if line)
        return {row["svname"]: _slot(row["status"], row["addr"]) for row in rows}

    def place(self, slot: str, address: str) -> None:
        """Put a server into a slot. It gets requests once its health check succeeds, and before if no other does."""
        host, _, port = address.rpartition(":")
        where = f"addr {host.strip('[]')} port {port}"
        # replaces another server, if the slot has one; requests under way there continue
        commands = [f"set server {section}/{slot} {what}" for what in (where, "state ready") for section in _SECTIONS]
        healths = [f"set server {READY}/{slot} health down", f"set server {UNREADY}/{slot} health up"]
        self._ask(";".join([*commands, *healths]))

    def clear(self, slot: str) -> None:
        """Empty a slot; requests under way continue."""
        self._ask(";".join(f"set server {section}/{slot} state maint" for section in _SECTIONS))

    def _ask(self, commands: str) -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.connect(str(self._path))
            connection.sendall(commands.encode() + b"\n")
            answer = bytearray()
            while received := connection.recv(65_536):
                answer += received
        return answer.decode()


def _slot(status: str, address: str) -> ProxySlot:
    return ProxySlot() if status.startswith("MAINT") else ProxySlot(address, status.startswith("DOWN"))
