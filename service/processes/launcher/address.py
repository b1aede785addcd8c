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
    """The argument of `socket.bind`, with host and port first."""


def reserve_address(host: str, port: int, setting: str, stack: ExitStack) -> Address:
    """Reserve the address to listen on for this server until the stack is closed.

    Only sockets of this user with SO_REUSEPORT can be bound beside it from then on: the front ends' own. Another server
    is refused from now on and not only once a front end listens, because it, too, first binds without SO_REUSEPORT.

    Args:
        host: name or address.
        port: 0 for any.
        setting: name of the port's setting, for the message.
        stack: holds the address.

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
    """Bind a socket to an address that no other socket is bound to.

    Two sockets with SO_REUSEADDR may be bound to one address until one of them listens, so it is set only where closed
    connections are left, and only to bind: of two servers that do that in the same microseconds, none would be refused.
    """
    try:
        kept.bind(where)
    except OSError:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(where)
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)


def bind_shared_address(address: Address) -> socket.socket:
    """Return a socket bound to the shared address; it gets connections while it listens."""
    bound = socket.socket(address.family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(address.where)
    return bound
