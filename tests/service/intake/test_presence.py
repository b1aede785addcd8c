"""A client's departure is noticed before the event loop next polls its sockets."""

from __future__ import annotations

import asyncio
import socket

from service.intake.presence import ClientPresence


async def test_a_disconnect_is_detected_before_the_event_loop_sees_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        with server:
            presence = ClientPresence(asyncio.get_running_loop().create_future(), server.fileno())
            client.sendall(b"the next request")
            assert not presence.has_disconnected()
            client.close()
            assert presence.has_disconnected()


async def test_a_disconnect_seen_by_the_event_loop_holds_whatever_the_socket_says() -> None:
    disconnected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    presence = ClientPresence(disconnected)
    assert not presence.has_disconnected()
    disconnected.set_result(None)
    assert presence.has_disconnected()
