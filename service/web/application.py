"""The ASGI application, and the HTTP/1.1 protocol with limits on a request's header."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from service.app import Service, open_service
from service.auth.exposure import keeps_gallery
from service.batching.backend import OpenBackend
from service.batching.local_backend import open_local_backend
from service.core.errors import Cancelled, ServiceError
from service.core.settings import Settings
from service.intake.presence import ClientPresence
from service.web import openapi_texts, routes
from service.web.docs import page as docs
from service.web.foreign_api import ForeignApi
from service.web.framing import FramedHttp
from service.web.middleware import access_log
from service.web.middleware.authorisation import Authorisation
from service.web.middleware.cors import allow_origins
from service.web.middleware.foreign_pages import ForeignPages, KnownSites
from service.web.middleware.methods import allowed_methods, heads_of
from service.web.page.routes import page_router
from service.web.request_headers import RequestHead
from service.web.results import routes as results

MAX_HEADER_BYTES = 64 * 1024
"""Limit of a request's header, all lines together; a larger one is answered 400 and the connection closed."""
_ROUTERS = (routes.router, results.router, docs.router)


class App:
    """The ASGI application: the middleware that every request passes, around FastAPI.

    The middleware is outside FastAPI, because the layers that FastAPI and Starlette put around their own middleware
    cost each image call time without any benefit.

    Args:
        settings: the server's settings.
        open_backend: opens the backend; by default one in this process.
        version: version of the server in the OpenAPI document.
        apis: foreign APIs to serve besides the server's own.
        opened: called with the running service before any request can arrive.
    """

    def __init__(
        self,
        settings: Settings,
        open_backend: OpenBackend = open_local_backend,
        version: str = "0",
        apis: Sequence[ForeignApi] = (),
        opened: Callable[[Service], Awaitable[None]] | None = None,
    ) -> None:
        self.service: Service | None = None
        """The running service, also in `request.state.service`; None before the ASGI lifespan has begun."""
        gallery = [results.gallery_router] if keeps_gallery(settings) else []
        links = [results.link_router] if settings.public_url else []
        page = [page_router()] if settings.page else []
        self._fastapi = _make_fastapi(self._lifespan, version, [*_ROUTERS, *gallery, *links, *page], apis)
        self._settings, self._open_backend, self._opened = settings, open_backend, opened
        routing = DirectRouting(self._fastapi, routes=routes.image_calls())
        app: ASGIApp = Authorisation(routing, links=bool(links))
        if settings.cors_origins:
            app = allow_origins(app, settings.cors_origins)
        self._outermost = access_log.AccessLog(ForeignPages(app, KnownSites.of(settings)), apis)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._outermost(scope, receive, send)

    @property
    def routes(self) -> list[BaseRoute]:
        """All routes of the application."""
        return self._fastapi.routes

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[dict[str, Any]]:
        async with open_service(self._settings, self._open_backend) as service:
            self.service = service
            if self._opened is not None:
                await self._opened(service)
            yield {"service": service}


class DirectRouting:
    """ASGI middleware that routes image calls past FastAPI, which saves over 100 us of CPU time per request.

    The image calls remain routes of FastAPI, too, for the OpenAPI document. They parse their requests themselves, so
    they need nothing from FastAPI (docs/measurements/cpu.md, "The short way past FastAPI's routing"). This is the
    innermost middleware, so that image calls pass through all others.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[APIRoute]) -> None:
        self._app = app
        self._routes = {(method, route.path): route for route in routes for method in route.methods or ()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        request = _ImageRequest(scope, receive, send)
        try:
            response = await route.endpoint(request)
        except ServiceError as error:
            response = await access_log.reply_with_problem(request, error)
        await response(scope, receive, send)


class _ImageRequest(Request):
    """A request whose header the outermost middleware has already parsed."""

    @property
    def headers(self) -> RequestHead:
        return RequestHead.of(self.scope)


def _make_fastapi(
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[dict[str, Any]]],
    version: str,
    own: Sequence[APIRouter],
    apis: Sequence[ForeignApi],
) -> FastAPI:
    app = FastAPI(
        title="Retouch",
        version=version,
        description=openapi_texts.INTRODUCTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        openapi_tags=[*openapi_texts.TAGS, *({"name": api.name, "description": api.description} for api in apis)],
        generate_unique_id_function=lambda route: route.name,
    )
    gets = [*own, *(api.router for api in apis)]
    routers = [*gets, *(heads_of(router) for router in gets)]
    for router in routers:
        app.include_router(router)

    async def refuse_method(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            error.headers = {"Allow": allowed_methods(routers, request.scope)}
        return await access_log.reply_with_problem(request, error)

    app.state.foreign_apis = tuple(apis)
    app.add_exception_handler(405, refuse_method)
    app.add_exception_handler(Cancelled, access_log.reply_to_nobody)
    for error in (ServiceError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(error, access_log.reply_with_problem)
    return app


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits of a connection; a client that exceeds one is disconnected."""

    header_timeout_s: float = 20.0
    """Time limit for a complete header; keep-alive has its own limit."""
    max_ignored_bytes: int = 16 * 2**20
    """Limit of a body that was refused before it was read."""
    ignored_body_timeout_s: float = 30.0
    """Time limit for such a body after its refusal."""
    write_timeout_s: float = 60.0
    """Time limit to read a response, except what fits into the system's send buffer, to free the response's memory."""


class LimitedHttp(FramedHttp):
    """HTTP/1.1 protocol with limits for each connection; uvicorn's own would buffer a header of any size."""

    _header_timer: asyncio.TimerHandle | None = None
    """Timer that runs while a header is awaited."""
    _awaits_header = False
    """Whether a header has begun but not ended; if it does not end in the same data, its timer starts."""
    _write_timer: asyncio.TimerHandle | None = None
    """Timer that runs while the client does not read the response."""
    _ignored_timer: asyncio.TimerHandle | None = None
    """Timer that runs while the rest of the body of an already answered request is awaited."""
    _ignored_bytes = 0
    """Bytes of that body received since the answer."""
    _unparsed_bytes = 0
    """Bytes received since the last parsed line or piece of a body, such as of an unfinished header line."""
    _parsed_bytes = 0
    """Bytes of the lines of this request's header parsed so far, without the first line."""
    _presence: ClientPresence
    """Says whether the client has disconnected; also in `request.state.presence`."""

    def __init__(self, *uvicorns: Any, limits: ConnectionLimits, **named: Any) -> None:
        super().__init__(*uvicorns, **named)
        self._limits = limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the header timer for a new connection."""
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        descriptor = connection.fileno() if connection else None
        self._presence = ClientPresence(self.loop.create_future(), descriptor, self.end_abandoned_request)
        self._start_header_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers and signal the disconnect."""
        self._stop_header_timer()
        self._stop_write_timer()
        self._stop_ignored_body_timer()
        self._presence.disconnected.set_result(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser; refuse the request if a header line exceeds the limit."""
        self._unparsed_bytes += len(data)
        self._awaits_header |= self.timeout_keep_alive_task is not None  # any data, even an empty line, ends that timer
        super().data_received(data)
        if self._awaits_header:
            self._start_header_timer()
        if self._unparsed_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
            self.refuse(f"The header is larger than {MAX_HEADER_BYTES} bytes.")

    def on_message_begin(self) -> None:
        """Reset the counters and await the header of a new request."""
        super().on_message_begin()
        self._parsed_bytes = self._ignored_bytes = 0
        self._awaits_header = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a complete header line; a header over the limit makes the request invalid (400)."""
        self._unparsed_bytes = 0
        self._parsed_bytes += len(name) + len(value) + len(b": \r\n")
        if len(self.url) + self._parsed_bytes > MAX_HEADER_BYTES:
            raise ValueError(f"the header is larger than {MAX_HEADER_BYTES} bytes")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Stop the header timer; the body follows."""
        self._unparsed_bytes, self._awaits_header = 0, False
        self._stop_header_timer()
        self.scope["state"]["presence"] = self._presence
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Pass on a piece of the body, which has a limit of its own (form.py)."""
        self._unparsed_bytes = 0
        if self.cycle.response_complete:  # answered early: read on, so that the client gets the answer
            self._ignored_bytes += len(body)
            if self._ignored_bytes > self._limits.max_ignored_bytes:
                self.transport.abort()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the timer for an ignored body, as the request is complete."""
        self._stop_ignored_body_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Start the timer for an ignored body if the response was sent before the body arrived."""
        super().on_response_complete()
        if self._in_body and self.cycle.response_complete and not self.transport.is_closing():
            self._ignored_timer = self.loop.call_later(self._limits.ignored_body_timeout_s, self.transport.abort)

    def pause_writing(self) -> None:
        """Start the write timer, as the client reads more slowly than the server sends."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self.loop.call_later(self._limits.write_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the write timer, as the client has read most of the response."""
        self._stop_write_timer()
        super().resume_writing()

    def _start_header_timer(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(self._limits.header_timeout_s, self.transport.abort)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _stop_ignored_body_timer(self) -> None:
        if self._ignored_timer is not None:
            self._ignored_timer.cancel()
            self._ignored_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
