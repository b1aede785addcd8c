"""Middleware in Ray's HTTP proxy: repeats a request on another replica if its replica is lost.

Ray's proxy would answer such a request with 500. A request without a reply may be repeated, because results are
acknowledged only by the reply. Its body is kept until the reply begins; its size is limited, because the replica stops
reading a body that is too large. A job may be recorded before its reply, so every try carries the same job id, and the
ledger accepts an id only once.

Ray calls `middlewares` in each proxy when RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH names it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence

from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import HTTP_PROTOCOLS

from service.compat.assembly import foreign_apis
from service.core.errors import NotReady, UploadTimeout
from service.core.settings import FOREIGN_APIS
from service.intake.wishes import acceptable_request_id
from service.ray.repeat_header import JOB_ID
from service.web.foreign_api import ForeignApi, ForeignPaths
from service.web.responses import problem_response

IMPORT_PATH = "service.ray.proxy:middlewares"
VARIABLE = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
_TRIES = 4
"""Replicas that may be lost over one request before it is given up."""
_RETRY_AFTER_S = 5.0
_RAY_PREFIX = "/-/"
"""Prefix of Ray's own routes and health checks, which no replica answers."""


def middlewares() -> list[Middleware]:
    """The middleware for Ray's proxy; also makes uvicorn use our strict HTTP protocol there."""
    HTTP_PROTOCOLS["auto"] = "service.web.framing:FramedHttp"
    return [Middleware(RepeatOnLoss, apis=foreign_apis(FOREIGN_APIS))]


class RepeatOnLoss:
    """ASGI middleware around Ray's proxy that repeats a request when its replica is lost before the reply.

    Args:
        app: Ray's proxy.
        apis: foreign APIs whose clients get errors in their own form, also where a replica has them off.
        pause_s: pause before another try, times the number of tries, in which Ray notices that a replica is gone.
    """

    def __init__(self, app: ASGIApp, apis: Sequence[ForeignApi] = (), pause_s: float = 0.1) -> None:
        self._app, self._paths, self._pause_s = app, ForeignPaths(apis), pause_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(_RAY_PREFIX):
            await self._app(scope, receive, send)
            return
        request_id = _set_ids(scope)
        body = _RepeatableBody(receive)
        for tries in range(1, _TRIES + 1):
            reply = _DelayedReply(send, request_id, body)
            await self._app({**scope, "headers": list(scope["headers"])}, body.reader(), reply.send)
            if reply.began or body.client_left:
                return
            await asyncio.sleep(tries * self._pause_s)
        error = NotReady("the replica was lost over this request, again and again; try again", code="worker_lost")
        error.retry_after_s = _RETRY_AFTER_S
        api = self._paths.api_of(scope["path"])
        response = problem_response(error, request_id, scope["path"]) if api is None else api.error_response(error)
        await response(scope, receive, _DelayedReply(send, request_id, body).send)


def _set_ids(scope: Scope) -> str:
    """Set a request id and a job id, which are the same in every try, and return the request id."""
    headers = MutableHeaders(scope=scope)
    headers[JOB_ID] = uuid.uuid4().hex  # instead of what a client sent
    request_id = acceptable_request_id(headers.get("x-request-id")) or uuid.uuid4().hex
    headers["x-request-id"] = request_id
    return request_id


class _RepeatableBody:
    """A request's body that can be read again from its beginning until `forget` is called."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept: list[Message] = []
        self._keeps = True
        self.client_left = False
        self.whole = False
        """Whether the client has sent all of it."""

    def reader(self) -> Receive:
        """An ASGI `receive` that begins with the first message."""
        position = 0

        async def receive() -> Message:
            nonlocal position
            if position < len(self._kept):
                position += 1
                return self._kept[position - 1]
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.client_left = True
            elif self._keeps:
                self.whole = not message.get("more_body", False)
                self._kept.append(message)
                position += 1
            return message

        return receive

    def forget(self) -> None:
        """Stop keeping messages, because the request will not be repeated."""
        self._keeps = False


class _DelayedReply:
    """Forwards a reply once its body begins; until then the request can be repeated on another replica.

    A 408 from a replica is dropped if the client has sent the whole body. Ray may itself repeat a request whose replica
    was lost early, and the new replica then waits in vain for the part of the body that was already read.
    """

    def __init__(self, send: Send, request_id: str, body: _RepeatableBody) -> None:
        self._send = send
        self._request_id = request_id
        self._body = body
        self._start: Message | None = None
        self.began = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if message["status"] == UploadTimeout.status and self._body.whole:
                return
            headers = MutableHeaders(scope=message)
            del headers["x-request-id"]  # the replica's and Ray's
            headers["x-request-id"] = self._request_id
            self._start = message
            return
        if self._start is not None:
            start, self._start, self.began = self._start, None, True
            self._body.forget()
            await self._send(start)
        if self.began:
            await self._send(message)
