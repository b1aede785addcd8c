"""The short way to the image calls: past FastAPI's routing, which costs more than reading their bodies.

They stay FastAPI's routes, too, for their documentation; what takes nothing but the request has nothing that FastAPI
would do for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.core.errors import ServiceError
from service.web.middleware.access_log import reply_with_problem


class Direct:
    """ASGI middleware within all others, so that nothing of theirs is left out."""

    def __init__(self, app: ASGIApp, routes: Iterable[APIRoute]) -> None:
        self._app = app
        self._routes = {(method, route.path): route for route in routes for method in route.methods or ()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        request = Request(scope, receive, send)
        try:
            response = await route.endpoint(request)
        except ServiceError as error:
            response = await reply_with_problem(request, error)
        await response(scope, receive, send)
