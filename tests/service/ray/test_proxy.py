"""A proxy that loses replicas, as Ray's does it: it ends without a reply."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest
import uvicorn
from starlette.types import Message, Receive, Scope, Send
from uvicorn.config import HTTP_PROTOCOLS

from service.compat.assembly import foreign_apis
from service.core.settings import FOREIGN_APIS
from service.ray.proxy import RepeatOnLoss, middlewares
from service.ray.repeat_header import JOB_ID, job_id_of
from service.web.foreign_api import ForeignApi
from service.web.framing import FramedHttp
from tests.service.compat.foreign_requests import GOOD, ForeignRequest

BODY = [b"one ", b"two ", b"three"]


class Client:
    """Sends a body in parts and takes what comes back."""

    def __init__(self, parts: list[bytes] = BODY, *, leaves: bool = False) -> None:
        last = len(parts) - 1
        self._parts: list[Message] = [
            {"type": "http.request", "body": part, "more_body": leaves or index < last}
            for index, part in enumerate(parts)
        ]
        if leaves:
            self._parts.append({"type": "http.disconnect"})
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        return self._parts.pop(0) if self._parts else await asyncio.Future()

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def headers(self) -> dict[str, str]:
        pairs = [(name.decode(), value.decode()) for name, value in self.sent[0]["headers"]]
        assert len(dict(pairs)) == len(pairs), "a header came twice"
        return dict(pairs)


Proxy = Callable[[Scope, Receive, Send], Awaitable[None]]


async def asked(
    proxy: Proxy, client: Client, path: str = "/v1/inpaint", headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    scope = {"type": "http", "path": path, "headers": [(b"x-request-id", b"mine"), *headers]}
    repeating = RepeatOnLoss(proxy, foreign_apis(FOREIGN_APIS), pause_s=0.001)
    await asyncio.wait_for(repeating(scope, client.receive, client.send), 10)


async def read(receive: Receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return body
        body, more = body + message["body"], message["more_body"]
    return body


def replies(lost: int, reads: int = 3, began: bool = False) -> tuple[Proxy, list[bytes]]:
    """A proxy that loses `lost` replicas after they read `reads` parts; and what those that live have read."""
    tries: list[Any] = []
    bodies: list[bytes] = []

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        tries.append(scope)
        start = {"type": "http.response.start", "status": 200, "headers": [(b"x-request-id", b"mine")] * 2}
        if len(tries) <= lost:
            for _ in range(reads):
                await receive()
            if began:
                await send(start)
            return
        bodies.append(await read(receive))
        await send(start)
        await send({"type": "http.response.body", "body": b"done"})

    return proxy, bodies


async def test_a_lost_request_is_asked_again_with_its_whole_body() -> None:
    for lost, reads in ((0, 0), (1, 0), (1, 2), (2, 3)):
        client, (proxy, bodies) = Client(), replies(lost, reads)
        await asked(proxy, client)
        assert bodies == [b"one two three"]
        assert [message["type"] for message in client.sent] == ["http.response.start", "http.response.body"]
        assert client.headers == {"x-request-id": "mine"}


async def test_every_try_brings_the_same_id_for_its_job_and_no_client_chooses_it() -> None:
    brought: list[list[bytes]] = []

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        brought.append([value for name, value in scope["headers"] if name == JOB_ID.encode()])

    for _ in range(2):
        await asked(proxy, Client(), headers=[(JOB_ID.encode(), b"0" * 32)])
    first, *_, last = brought
    assert len(brought) == 8
    assert brought == [first] * 4 + [last] * 4
    assert len({b"0" * 32, *first, *last}) == 3
    assert job_id_of({"type": "http", "headers": [(JOB_ID.encode(), *first)]}) == first[0].decode()


async def test_a_reply_that_only_began_can_still_come_from_another_replica() -> None:
    client, (proxy, bodies) = Client(), replies(lost=1, began=True)
    await asked(proxy, client)
    assert bodies == [b"one two three"]
    assert [message["type"] for message in client.sent] == ["http.response.start", "http.response.body"]


async def test_a_replica_that_waited_in_vain_for_a_body_that_had_come_is_not_believed() -> None:
    for parts_read, statuses in ((3, [200]), (2, [408])):
        client, replies = Client(), [408, 200]

        async def proxy(
            scope: Scope, receive: Receive, send: Send, parts_read: int = parts_read, replies: list[int] = replies
        ) -> None:
            for _ in range(parts_read):
                await receive()
            await send({"type": "http.response.start", "status": replies.pop(0), "headers": []})
            await send({"type": "http.response.body", "body": b"done"})

        await asked(proxy, client)
        assert [message["status"] for message in client.sent if "status" in message] == statuses
        assert [message["type"] for message in client.sent] == ["http.response.start", "http.response.body"]


async def test_a_request_that_outlives_every_replica_is_answered_with_a_problem() -> None:
    client, (proxy, bodies) = Client(), replies(lost=100)
    await asked(proxy, client)
    assert bodies == []
    assert client.sent[0]["status"] == 503
    assert client.headers["retry-after"] == "5"
    assert client.headers["x-request-id"] == json.loads(client.sent[1]["body"])["request_id"] == "mine"


@pytest.mark.parametrize("foreign", GOOD, ids=lambda one: one.api)
async def test_a_foreign_request_that_outlives_every_replica_is_answered_in_its_own_form(
    foreign: ForeignRequest,
) -> None:
    client, (proxy, _) = Client(), replies(lost=100)
    await asked(proxy, client, foreign.path)
    assert client.sent[0]["status"] == 503
    assert client.headers["content-type"] == "application/json"
    assert client.headers["retry-after"] == "5"
    assert client.headers["x-request-id"] == "mine"
    assert "lost over this request" in foreign.message(json.loads(client.sent[1]["body"]))


async def test_rays_own_middleware_knows_the_foreign_apis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HTTP_PROTOCOLS, "auto", HTTP_PROTOCOLS["auto"])
    (made,) = middlewares()
    apis = cast("Sequence[ForeignApi]", made.kwargs["apis"])
    assert {api.name for api in apis} == set(FOREIGN_APIS)


async def test_nothing_is_asked_again_for_a_client_that_left() -> None:
    client, tries = Client(leaves=True), []

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        tries.append(await read(receive))

    await asked(proxy, client)
    assert len(tries) == 1
    assert client.sent == []


async def test_rays_own_paths_are_left_to_it() -> None:
    client, (proxy, _) = Client(), replies(lost=1, reads=0)
    await asked(proxy, client, "/-/healthz")
    assert client.sent == []


def test_rays_proxy_reads_requests_as_the_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HTTP_PROTOCOLS, "auto", HTTP_PROTOCOLS["auto"])  # as Ray's process finds it
    middlewares()
    config = uvicorn.Config(RepeatOnLoss, lifespan="off", log_config=None)  # as Ray makes it
    config.load()
    assert config.http_protocol_class is FramedHttp
