"""The address that several front ends share (SO_REUSEPORT)."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Any, NamedTuple

from service.core.settings import SettingsInvalid
from service.preflight import check_address


class Address(NamedTuple):
    """The address that all front ends listen on."""

    family: int
    where: Any
    """The argument of `socket.bind`, with host and port first."""


def reserve_address(host: str, port: int, stack: ExitStack) -> Address:
    """Reserve the address to listen on for this server until the stack is closed.

    Raises:
        SettingsInvalid: the address is in use or not one of this machine's.
    """
    check_address(host, port)  # without SO_REUSEPORT, so that no other server can share the address
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        kept = stack.enter_context(bind_shared_address(Address(family, where)))
    except OSError as error:
        raise SettingsInvalid(f"cannot listen on {host}:{port} ({error.strerror or error}); choose another") from error
    return Address(family, kept.getsockname())


def bind_shared_address(address: Address) -> socket.socket:
    """Return a socket bound to the shared address; it gets connections while it listens."""
    bound = socket.socket(address.family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    bound.bind(address.where)
    return bound
