"""The connections of a gRPC server, found among the files that this process has open, as grpcio does not show them."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def close_connections(port: int) -> None:
    """Close all TCP connections to a port of this process; what was sent on them still arrives.

    Clients get UNAVAILABLE for calls that have no answer, and may send them again.
    """
    with suppress(OSError):  # the system does not list the files, or the process may open none to read the list
        for path in Path("/dev/fd").iterdir():
            with suppress(OSError):  # closed meanwhile, or not a connection
                _close_connection(int(path.name), port)


def _close_connection(number: int, port: int) -> None:
    """Close a file if it is a connection to that port.

    Raises:
        OSError: the file is not open, or is a socket that listens.
    """
    descriptor = os.dup(number)  # the number alone could become another file's meanwhile
    if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return
    with socket.socket(fileno=descriptor) as found:
        if found.family in _FAMILIES and found.getsockname()[1] == port:
            found.getpeername()
            found.shutdown(socket.SHUT_RDWR)
