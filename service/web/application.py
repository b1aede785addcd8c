"""The ASGI application: the middleware that every request passes, and the routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
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
from service.lifecycle.patient_threads import use_patient_threads
from service.web import openapi_texts, routes
from service.web.docs import page as docs
from service.web.foreign_api import ForeignApi
from service.web.middleware import access_log
from service.web.middleware.authorisation import Authorisation
from service.web.middleware.cors import allow_origins
from service.web.middleware.foreign_pages import ForeignPages, KnownSites
from service.web.middleware.methods import allowed_methods, heads_of
from service.web.page.routes import page_router
from service.web.request_headers import RequestHead
from service.web.results import routes as results

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
        use_patient_threads()
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
