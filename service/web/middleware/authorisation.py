"""Authentication, authorisation and rate limits, before a request's body is read or routed.

Access is denied by default: every path that is not in `PUBLIC`, even a missing one, needs a key with a scope, so that a
new route is protected without further work.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.auth.clients import Client, Clients
from service.auth.keys import Scope as KeyScope
from service.auth.links import is_link
from service.core.errors import ServiceError
from service.web.docs.page import DOCS_PATHS
from service.web.foreign_api import ForeignApi
from service.web.middleware.access_log import reply_with_problem
from service.web.page.files import PAGE_PATHS
from service.web.request_headers import RequestHead

PUBLIC = frozenset({"/livez", "/readyz", *DOCS_PATHS, *PAGE_PATHS})
"""Paths without a key: probes cannot send keys, the documentation is public anyway, and the page asks for a key."""
_RESULTS = "/v1/results"


def scopes_of(method: str, path: str, api: ForeignApi | None = None) -> tuple[KeyScope, ...]:
    """Return the scopes of which a key needs at least one for a request; empty if no key is needed."""
    if path in PUBLIC or (api is not None and path in api.public):
        return ()
    if path == "/metrics":
        return ("metrics",)
    if path != _RESULTS and not path.startswith(f"{_RESULTS}/"):
        return ("inference",)
    if method == "DELETE":
        return ("results:delete",)
    return ("results:read",) if path == _RESULTS else ("inference", "results:read")


class Authorisation:
    """ASGI middleware inside `AccessLog` and around everything else; sets `request.state.client`.

    Args:
        app: the application.
        links: whether the server makes links to results; for them the route checks a signature in place of a key.
    """

    def __init__(self, app: ASGIApp, *, links: bool = False) -> None:
        self._app, self._links = app, links

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        address = scope["client"][0] if scope.get("client") else "unknown"
        method, path = scope["method"], scope["path"]
        needed = scopes_of(method, path, scope["state"].get("foreign_api"))
        if not needed or (self._links and is_link(method, path)):
            scope["state"]["client"] = Client(f"address:{address}", scopes=frozenset())
            await self._app(scope, receive, send)
            return
        try:
            _identify_and_charge(scope, needed, address)
        except ServiceError as error:
            response = await reply_with_problem(Request(scope), error)
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)


def _identify_and_charge(scope: Scope, needed: tuple[KeyScope, ...], address: str) -> None:
    clients: Clients = scope["state"]["service"].clients
    api: ForeignApi | None = scope["state"].get("foreign_api")
    client = clients.identify(RequestHead.of(scope), address, basic=api is not None and api.basic_keys)
    scope["state"]["client"] = client
    client.require(*needed)
    idle = api is not None and scope["path"] in api.idle_posts
    clients.charge(client, work=scope["method"] == "POST" and not idle)
