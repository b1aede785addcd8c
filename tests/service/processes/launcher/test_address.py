"""The address of a server: once reserved, only its front ends can listen there."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from service.core.settings import SettingsInvalid
from service.preflight import check_address
from service.processes.launcher.address import bind_shared_address, reserve_address


def test_front_ends_share_the_address_that_is_reserved() -> None:
    with ExitStack() as stack:
        address = reserve_address("127.0.0.1", 0, "port", stack)
        for _ in range(2):
            stack.enter_context(bind_shared_address(address)).listen()
        socket.create_connection(address.where, 10).close()


@pytest.mark.parametrize("leaves_closed_connections", [False, True])
def test_of_two_launchers_that_start_at_once_the_second_is_refused_before_the_first_listens(
    leaves_closed_connections: bool,
) -> None:
    port = _port_of_an_ended_server() if leaves_closed_connections else 0
    with ExitStack() as first, ExitStack() as second:
        port = reserve_address("127.0.0.1", port, "port", first).where[1]
        for refused in (
            lambda: reserve_address("127.0.0.1", port, "grpc_port", second),
            lambda: check_address("127.0.0.1", port, "grpc_port"),
        ):
            with pytest.raises(SettingsInvalid, match=rf"grpc_port: .*:{port} \(Address already in use\)"):
                refused()


def test_an_address_is_free_again_after_its_server() -> None:
    with ExitStack() as first:
        address = reserve_address("127.0.0.1", 0, "port", first)
        bind_shared_address(address).close()
    with ExitStack() as second:
        assert reserve_address("127.0.0.1", address.where[1], "port", second) == address


def _port_of_an_ended_server() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            listening.accept()[0].close()  # the side that closes first waits in TIME_WAIT
            assert client.recv(1) == b""
    return port
