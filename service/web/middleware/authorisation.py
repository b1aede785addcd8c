"""The edge: whoever is not known, may not do this, or asks too often is turned away before anything is read or routed.

Deny by default: every path that is not in `PUBLIC` needs a key, whether it exists or not, and a key's scope. What a new
route needs is therefore never nothing.
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

PUBLIC = frozenset({"/livez", "/readyz", *DOCS_PATHS})
"""Probes carry no keys, and the documentation holds nothing that the source does not."""
_SCOPES: dict[str, KeyScope] = {"/metrics": "metrics"}


def scope_of(path: str) -> KeyScope | None:
    """What a key must be allowed for this path; None where none is needed."""
    return None if path in PUBLIC else _SCOPES.get(path, "inference")


class Authorisation:
    """ASGI middleware within `Access`, round everything else; puts the client into `request.state.client`."""

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
