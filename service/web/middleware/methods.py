"""HEAD for every GET route, and the `Allow` header of a 405.

FastAPI adds no HEAD to GET routes, and its `Allow` has only the methods of the first route with the path.
"""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope


def heads_of(router: APIRouter) -> APIRouter:
    """Return a router with a HEAD route for each GET route of `router`; the web server omits the bodies.

    The HEAD routes are not in the OpenAPI document, because RFC 9110 defines them.
    """
    heads = APIRouter()
    for route in _routes_of(router):
        if "GET" in (route.methods or ()):
            heads.add_api_route(
                route.path,
                route.endpoint,
                methods=["HEAD"],
                response_model=route.response_model,
                include_in_schema=False,
            )
    return heads


def allowed_methods(routers: Iterable[APIRouter], scope: Scope) -> str:
    """Return the value of `Allow` (RFC 9110, 10.2.1) for a request's path: the methods of all its routes."""
    routes = [route for router in routers for route in _routes_of(router) if route.matches(scope)[0] is not Match.NONE]
    return ", ".join(sorted({method for route in routes for method in route.methods or ()}))


def _routes_of(router: APIRouter) -> list[APIRoute]:
    return [route for route in router.routes if isinstance(route, APIRoute)]
