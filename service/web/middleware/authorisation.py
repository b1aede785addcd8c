"""Authentication, authorisation and rate limits, before a request's body is read or routed.

Deny by default: every path that is not in `PUBLIC`, whether it exists or not, needs a key with a scope, so that a new
route is protected without further work.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.auth.clients import Client, Clients
from service.auth.keys import Scope as KeyScope
from service.core.errors import ServiceError
from service.web.docs_page import DOCS_PATHS
from service.web.middleware.access_log import reply_with_problem
from service.web.page.files import PAGE_PATHS

PUBLIC = frozenset({"/livez", "/readyz", *DOCS_PATHS, *PAGE_PATHS})
"""Paths without a key: probes cannot send keys, the documentation is public anyway, and the page asks for a key."""
_SCOPES: dict[str, KeyScope] = {"/metrics": "metrics"}


def scope_of(path: str) -> KeyScope | None:
    """The scope that a key needs for this path; None if no key is needed."""
    return None if path in PUBLIC else _SCOPES.get(path, "inference")


class Authorisation:
    """ASGI middleware inside `Access` and around everything else; sets `request.state.client`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        address = scope["client"][0] if scope.get("client") else "unknown"
        needed = scope_of(scope["path"])
        if needed is None:
            scope["state"]["client"] = Client(f"address:{address}", scopes=frozenset())
            await self._app(scope, receive, send)
            return
        try:
            _admit(scope, needed, address)
        except ServiceError as error:
            response = await reply_with_problem(Request(scope), error)
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _admit(scope: Scope, needed: KeyScope, address: str) -> None:
    clients: Clients = scope["state"]["service"].clients
    client = clients.identify(Headers(scope=scope), address)
    scope["state"]["client"] = client
    client.require(needed)
    clients.charge(client, work=scope["method"] == "POST")
