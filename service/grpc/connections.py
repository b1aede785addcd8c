"""The connections of a gRPC server, found among the files that this process has open, as grpcio does not show them."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import struct
import termios
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def close_connections(port: int) -> None:
    """Close all TCP connections to a port of this process.

    Clients get UNAVAILABLE for calls that have no answer, and may send them again. A part of an answer that the client
    has not received yet can be lost: see `unsent_bytes`.
    """
    for connection in _connections(port):
        with suppress(OSError):  # closed meanwhile
            connection.shutdown(socket.SHUT_RDWR)


def unsent_bytes(port: int) -> int:
    """Return the number of bytes that clients of a port of this process have not received yet."""
    count = 0
    for connection in _connections(port):
        with suppress(OSError):  # closed meanwhile
            (waiting,) = struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))
            count += waiting
    return count


def _connections(port: int) -> Iterator[socket.socket]:
    """Yield duplicates of the connections to a port of this process, one after another."""
    with suppress(OSError):  # the system does not list the files, or the process may open none to read the list
        for path in Path("/dev/fd").iterdir():
            with suppress(OSError):  # closed meanwhile, or not a connection
                descriptor = os.dup(int(path.name))  # the number alone could become another file's meanwhile
                if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                    os.close(descriptor)
                    continue
                with socket.socket(fileno=descriptor) as found:
                    if found.family in _FAMILIES and found.getsockname()[1] == port:
                        found.getpeername()  # fails for a socket that listens
                        yield found
