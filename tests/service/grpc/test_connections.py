"""Closing the connections to a port, and no other of the process's files."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from service.grpc.connections import close_connections, unsent_bytes
from tests.fakes.descriptors import no_descriptors_left
from tests.serving.waiting import wait_until

Connected = tuple[socket.socket, socket.socket, socket.socket]


@pytest.fixture(params=["127.0.0.1", "::1"])
def pairs(request: pytest.FixtureRequest) -> Iterator[tuple[Connected, Connected]]:
    """Two ports with a connection each: the listening socket, the accepted one and the client's."""
    first, second = connected(request.param), connected(request.param)
    yield first, second
    for one in (*first, *second):
        one.close()


def connected(host: str) -> Connected:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, 0), family=family)
    client = socket.create_connection(listener.getsockname()[:2])
    client.settimeout(10)
    return listener, listener.accept()[0], client


def test_a_client_gets_what_was_sent_and_then_the_end(pairs: tuple[Connected, Connected]) -> None:
    (listener, accepted, client), _ = pairs
    accepted.sendall(b"answer")
    client.sendall(b"a call that nobody reads")
    close_connections(listener.getsockname()[1])
    assert client.recv(100) == b"answer"
    assert client.recv(100) == b""


def test_what_a_client_has_not_received_yet_is_counted(pairs: tuple[Connected, Connected]) -> None:
    (listener, accepted, client), (other, _, _) = pairs
    port = listener.getsockname()[1]
    assert unsent_bytes(port) == 0
    accepted.setblocking(False)
    sent = 0
    with suppress(BlockingIOError):
        while True:
            sent += accepted.send(bytes(65536))
    assert 0 < unsent_bytes(port) < sent
    assert unsent_bytes(other.getsockname()[1]) == 0
    while sent:
        sent -= len(client.recv(65536))
    wait_until(lambda: unsent_bytes(port) == 0)


def test_connections_of_other_ports_and_other_files_stay_open(
    pairs: tuple[Connected, Connected], tmp_path: Path
) -> None:
    (closed, _, _), (other, accepted, client) = pairs
    before = {path.name for path in Path("/dev/fd").iterdir()}
    with closing(socket.create_connection(other.getsockname()[:2])) as outgoing, (tmp_path / "file").open("w") as file:
        close_connections(closed.getsockname()[1])
        file.write("open")
        outgoing.sendall(b"open")
        accepted.sendall(b"open")
    assert client.recv(100) == b"open"
    assert {path.name for path in Path("/dev/fd").iterdir()} == before, "no descriptor is left"


def test_a_process_without_free_descriptors_closes_nothing_and_goes_on(pairs: tuple[Connected, Connected]) -> None:
    (listener, accepted, client), _ = pairs
    with no_descriptors_left():
        close_connections(listener.getsockname()[1])
    accepted.sendall(b"open")
    assert client.recv(100) == b"open"


def test_the_port_still_listens(pairs: tuple[Connected, Connected]) -> None:
    (listener, _, _), _ = pairs
    close_connections(listener.getsockname()[1])
    socket.create_connection(listener.getsockname()[:2]).close()
