"""Ports for servers of tests and benchmarks."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress

_FIRST, _COUNT = 20_000, 6_000
"""Ports below those that systems give to connections and to servers that ask for port 0; as many claims follow."""


def free_port() -> int:
    """Return a TCP port of this machine on which no process listens, and which no later call returns in any process.

    Between this call and the start of the server, a port that the system chooses would be free for every other process.
    """
    while True:
        port = _FIRST + secrets.randbelow(_COUNT)
        with suppress(OSError), socket.socket() as probe, socket.socket(type=socket.SOCK_DGRAM) as claim:
            probe.bind(("127.0.0.1", port))
            # a port of UDP is the claim of a port of TCP; not the same one, which HTTP/3 takes for a server
            claim.bind(("127.0.0.1", port + _COUNT))
            claim.detach()  # it stays open until this process ends
            return port
