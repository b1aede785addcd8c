"""Ports for servers of tests and benchmarks."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress

_FIRST, _COUNT = 20_000, 12_000
"""Ports below those that systems give to connections and to servers that ask for port 0."""


def free_port() -> int:
    """Return a TCP port of this machine on which no process listens, and which no later call returns in any process.

    Between this call and the start of the server, a port that the system chooses would be free for every other process.
    """
    while True:
        port = _FIRST + secrets.randbelow(_COUNT)
        with suppress(OSError), socket.socket() as probe, socket.socket(type=socket.SOCK_DGRAM) as claim:
            probe.bind(("127.0.0.1", port))
            claim.bind(("127.0.0.1", port))  # this port of UDP is the claim of the port of TCP
            claim.detach()  # it stays open until this process ends
            return port
