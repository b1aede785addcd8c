"""Protection against pages of other sites, opened in a browser that can reach this server (ADR 28).

A page of another origin can send requests here, though it cannot read the replies. A page that binds its own name to
this server's address (DNS rebinding) can even read them. The former is recognised by `Origin` and `Sec-Fetch-Site`,
which a page cannot set, the latter by `Host`.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.core.errors import Forbidden, Misdirected, ServiceError
from service.core.lists_and_folders import listed
from service.core.settings import Settings
from service.web.foreign_api import ForeignApi
from service.web.middleware.access_log import reply_with_problem
from service.web.request_headers import RequestHead

_HOST = re.compile(r"(\[[^\[\]]*\]|[^:/?#@\[\]]*)(?::[0-9]*)?")
_PROBES = frozenset({"/livez", "/readyz"})
"""Paths that are answered under any host name, as an orchestrator's probe uses its own network's name of the server."""
_MAX_CACHED_HOSTS = 256
"""Number of known Host headers that are cached, as parsing one takes as long as reading the whole header."""
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing; a foreign page cannot read their replies."""
_SAME_SITE = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site for requests of this server's pages, and for addresses that a person typed or opened."""


@dataclass(frozen=True, slots=True)
class KnownSites:
    """The names of this server, and the origins of other servers whose pages may call it.

    names: public names, in lower case; `*.example.org` stands for all subdomains, `*` for any name. They include the
        public URL's host, also with its port, as in an `Origin`.
    bound: the name or address on which the server listens.
    origins: allowed origins, such as `https://app.example`; `*` for any.
    """

    names: frozenset[str]
    origins: frozenset[str]
    bound: str = ""

    @classmethod
    def of(cls, settings: Settings) -> KnownSites:
        """Return the sites in the settings, including the address to listen on and the public URL."""
        names = {name.rstrip(".") for name in listed(settings.public_host.lower())}
        public = urlsplit(settings.public_url)
        names |= {public.netloc.lower(), public.hostname or ""} - {""}
        return cls(frozenset(names), frozenset(listed(settings.cors_origins)), settings.host.lower())

    def check_host(self, host: str | None) -> None:
        """Check the Host header of a request, with or without a port.

        An IP address is always allowed, as a page with that origin was loaded from this server. A request without a
        host is allowed, too, as no browser sends one.

        Raises:
            Misdirected: the host name is not known.
        """
        name = _name_of(host or "")
        if not name or "*" in self.names or _is_address(name) or self._knows(name):
            return
        raise Misdirected(
            f"this server is not known as {name[:100]!r}; call it by its address, or start it with --public-host NAME"
        )

    def check_origin(self, method: str, headers: Headers) -> None:
        """Check that no page of a foreign origin sent a request that may change something.

        Raises:
            Forbidden: code `foreign_origin`.
        """
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        if method in _SAFE or (origin is not None and not self.origins.isdisjoint((origin, "*"))):
            return
        if site in _SAME_SITE or (site != "cross-site" and self._is_own(origin, headers.get("host", ""))):
            return
        raise Forbidden(
            f"a page of {(origin or 'another site')[:200]} may not send this; allow its origin with --cors-origins",
            code="foreign_origin",
        )

    def _is_own(self, origin: str | None, host: str) -> bool:
        """Return whether an origin is this server's, reached directly or through a proxy that changes the host."""
        if origin is None:  # not from a page, or from a page of the same origin
            return True
        authority = origin.partition("://")[2].lower()
        return authority == host.lower() or authority in self.names

    def _knows(self, name: str) -> bool:
        below = (f"*.{name.split('.', level)[level]}" for level in range(1, name.count(".") + 1))
        if name in ("localhost", self.bound) or name.endswith(".localhost"):  # browsers take the latter for loopback
            return True
        return not self.names.isdisjoint((name, *below))


def _name_of(host: str) -> str:
    """Return the name or address in a Host header, in lower case, without port, brackets and trailing dot."""
    found = _HOST.fullmatch(host.lower())
    return found[1].strip("[]").rstrip(".") if found else host


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_probe(scope: Scope) -> bool:
    api: ForeignApi | None = scope["state"].get("foreign_api")
    return scope["path"] in _PROBES or (api is not None and scope["path"] in api.public)


class ForeignPages:
    """ASGI middleware inside `AccessLog` and around everything else, so that a refusal needs no key."""

    def __init__(self, app: ASGIApp, sites: KnownSites) -> None:
        self._app, self._sites = app, sites
        self._known_hosts: set[str | None] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self._check(scope)
            except ServiceError as error:
                response = await reply_with_problem(Request(scope), error)
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = RequestHead.of(scope)
        host = headers.get("host")
        if host not in self._known_hosts and not _is_probe(scope):
            self._sites.check_host(host)
            if len(self._known_hosts) < _MAX_CACHED_HOSTS:
                self._known_hosts.add(host)
        self._sites.check_origin(scope["method"], headers)
