"""The channel: messages arrive whole and in order, however the socket splits them; foreign processes are refused."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import msgspec
import pytest

from service.processes.shared.channel import Channel, greet, receive_greeting
from service.processes.shared.messages import Begun, Done, Failed, Hello, Message, Submit, decode_all, encode


async def test_messages_arrive_in_order_and_all_of_one_turn_in_one_write() -> None:
    received: list[Message] = []
    ended = asyncio.Event()
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    sender = Channel(lambda _: None, lambda: None)
    receiver = Channel(received.append, ended.set)
    await loop.connect_accepted_socket(lambda: sender, ours)
    await loop.connect_accepted_socket(lambda: receiver, theirs)
    sent: list[Message] = [Begun(n) for n in range(1000)]
    sent += [Done(1, 8, 0.5, 0.25, 0.125), Failed(2, "NotReady", "ü" * 5000, "worker_lost", 1.5)]
    sent.append(Submit(7, 1, 4096, 512, 256, 1, 12.5, True, "somebody", 5))
    for message in sent:
        sender.send(message)
    sender.close()
    await asyncio.wait_for(ended.wait(), 10)
    assert received == sent


async def test_a_frame_may_come_in_pieces() -> None:
    received: list[Message] = []
    channel = Channel(received.append, lambda: None)
    body = encode([Begun(1), Begun(2)])
    frame = len(body).to_bytes(4, "little") + body
    for byte in frame + frame:
        channel.data_received(bytes([byte]))
    assert received == [Begun(1), Begun(2), Begun(1), Begun(2)]


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_all(b"\xc1nonsense")
    with pytest.raises(msgspec.ValidationError):
        decode_all(msgspec.msgpack.encode([["Done", "one", 2, 3, 4]]))


@pytest.fixture
def listener(short_folder: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(short_folder / "engine.sock"))
    listener.listen()
    return listener


def test_a_greeting_brings_the_slots_along(listener: socket.socket, short_folder: Path) -> None:
    descriptor = os.memfd_create("test")
    os.write(descriptor, b"pixels")
    with listener, greet(short_folder / "engine.sock", Hello(3, 4096), descriptor):
        connection, _ = listener.accept()
        with connection:
            hello, theirs = receive_greeting(connection)
    assert hello == Hello(3, 4096)
    assert os.pread(theirs, 6, 0) == b"pixels"
    os.close(theirs)
    os.close(descriptor)


@pytest.mark.parametrize("greeting", [b"GET / HTTP/1.1\r\n\r\n", encode(Begun(1)), encode(Hello(0, 4096)), b""])
def test_an_unknown_peer_is_rejected(listener: socket.socket, short_folder: Path, greeting: bytes) -> None:
    with listener, socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(str(short_folder / "engine.sock"))
        stranger.sendall(greeting)
        stranger.shutdown(socket.SHUT_WR)
        connection, _ = listener.accept()
        with connection, pytest.raises(OSError, match="invalid greeting"):
            receive_greeting(connection)
