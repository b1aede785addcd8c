"""The address that several front ends share (SO_REUSEPORT)."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any, NamedTuple

from service.preflight import cannot_listen


class Address(NamedTuple):
    """The address that all front ends listen on."""

    family: int
    where: Any
    """The argument of `socket.bind`, which begins with host and port."""


def reserve_address(host: str, port: int, setting: str, stack: ExitStack) -> Address:
    """Reserve the address to listen on for this server until the stack is closed.

    From then on only this user's sockets with SO_REUSEPORT, such as the front ends', can be bound to it. Another server
    is refused even before a front end listens, because it, too, first binds without SO_REUSEPORT.

    Args:
        host: host name or address.
        port: port; 0 for any free one.
        setting: name of the port's setting, for the message.
        stack: holds the reservation.

    Raises:
        SettingsInvalid: the address is in use or not one of this machine's.
    """
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        kept = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        _bind_alone(kept, where)
    except OSError as error:
        raise cannot_listen(host, port, setting, error) from error
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return Address(family, kept.getsockname())


def _bind_alone(kept: socket.socket, where: Any) -> None:
    """Bind a socket to an address; fail if another socket is bound to it.

    Closed connections that linger on the address (TIME_WAIT) make a plain bind fail, so it is repeated with
    SO_REUSEADDR. That option is set only during the bind, because two sockets that have it can be bound to one address.
    Only two servers that bind within the same microseconds would both succeed.
    """
    try:
        kept.bind(where)
    except OSError:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(where)
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)


def bind_shared_address(address: Address) -> socket.socket:
    """Return a socket bound to the shared address; it receives connections once it listens."""
    bound = socket.socket(address.family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(address.where)
    return bound
