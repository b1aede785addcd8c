"""Check of webhook targets against server-side request forgery (SSRF): no name may lead to an internal address.

A forbidden URL is refused when a job is submitted. Because a name may resolve to another address later, every delivery
attempt resolves and checks it again, and connects to exactly the address that was checked. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from service.core.errors import InvalidOption

Resolve = Callable[[str, int, int], Awaitable[list[Any]]]
"""An awaitable function like `loop.getaddrinfo`, which takes host, port and family."""
_NOT_PUBLIC = "goes to an address that is not public; send a public one, or start the server with --webhook-private"
_RESOLVE_WITHIN_S = 2.0
"""Time limit of a look-up while a client waits for its 202; slower names are checked when the webhook is sent."""
_MAX_URL_LENGTH = 2048
_EXPECTED = "send an address like https://HOST/PATH"
_LEADING_TO_IPV4 = tuple(map(ipaddress.ip_network, ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")))
"""Prefixes of IPv4-compatible, IPv4-translated and NAT64 addresses (RFC 4291, 2765, 6052, 8215): which IPv4 address
they reach is unknown."""
_AUTHORITY = re.compile(r"(?:[^@]*@)?(?:\[[^]@]+\]|[A-Za-z0-9._-]+)(?::[0-9]*)?")
"""User, host and port of a URL: with other characters in a host, URL parsers disagree on where it ends."""


@dataclass(frozen=True, slots=True)
class Destinations:
    """The allowed targets of webhooks.

    hosts: allowed host names, `*.example.com` for all subdomains; empty: any name.
    private: whether plain HTTP and addresses that are not public are allowed, too.
    """

    hosts: tuple[str, ...] = ()
    private: bool = False

    def check(self, url: str) -> None:
        """Refuse a URL that is forbidden whatever its host name resolves to.

        Raises:
            InvalidOption: code `webhook_refused`; the message gives the reason.
        """
        if reason := self._refusal(url):
            raise InvalidOption(f"`webhook` {reason}", code="webhook_refused")

    async def check_name(self, url: str, resolve: Resolve) -> None:
        """Refuse a URL whose host name resolves to a non-public address now; called after `check`.

        A name that cannot be resolved now is not refused, as it may be resolvable later.

        Raises:
            InvalidOption: as raised by `check`.
        """
        parts = urlsplit(url)
        if self.private or not parts.hostname or _as_address(parts.hostname) is not None:
            return
        try:
            found = await asyncio.wait_for(resolve(parts.hostname, parts.port or 443, 0), _RESOLVE_WITHIN_S)
        except (OSError, asyncio.TimeoutError):
            return
        if not all(self.allows_address(info[4][0]) for info in found):
            raise InvalidOption(f"`webhook` {_NOT_PUBLIC}", code="webhook_refused")

    def allows_address(self, address: str) -> bool:
        """Return whether connections to that IP address are allowed."""
        found = _as_address(address)
        return self.private or (found is not None and _is_public(found))

    def _refusal(self, url: str) -> str | None:
        if reason := _why_unusable(url):
            return reason
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme not in (("https", "http") if self.private else ("https",)):
            return "must be an https:// URL"
        if parts.username is not None or parts.password is not None:
            return "must not carry a user name or password"
        if self.hosts and not any(_host_matches(host, pattern) for pattern in self.hosts):
            return (
                f"goes to {host[:80]}, which this server does not send to; its operator can allow it (--webhook-hosts)"
            )
        if self._is_known_private(host):
            return _NOT_PUBLIC
        return None

    def _is_known_private(self, host: str) -> bool:
        """Return whether the host is known not to be public without resolving it, such as `localhost` (RFC 6761)."""
        is_local = f".{host.rstrip('.')}".endswith(".localhost")
        return (is_local and not self.private) or (_as_address(host) is not None and not self.allows_address(host))


def with_usual_address(url: str) -> str:
    """Return a URL that passed `Destinations.check` with its IPv4 address, if it has one, as four decimal numbers.

    The HTTP client connects to no other notation, such as `127.1`.
    """
    parts = urlsplit(url)
    address = _as_address(parts.hostname or "")
    if not isinstance(address, ipaddress.IPv4Address):
        return url
    port = "" if parts.port is None else f":{parts.port}"
    return urlunsplit(parts._replace(netloc=f"{address}{port}"))


def _why_unusable(url: str) -> str | None:
    """Return why a text is not a URL with a host, and what to send instead; None if it is one."""
    if len(url) > _MAX_URL_LENGTH:
        return f"is longer than {_MAX_URL_LENGTH} characters; {_EXPECTED}"
    if not url.isascii() or not url.isprintable() or " " in url:
        return f"has characters that are not allowed in URLs; {_EXPECTED}, percent-encoded, and a host as xn--"
    try:
        parts = urlsplit(url)
    except ValueError:
        return f"is not a valid URL; {_EXPECTED}, with an IPv6 address in [ ]"
    return _why_authority_unusable(parts)


def _why_authority_unusable(parts: SplitResult) -> str | None:
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        return f"has an invalid port; {_EXPECTED}, or https://HOST:PORT/PATH with 1 to 65535"
    if not parts.hostname:
        return f"has no host; {_EXPECTED}"
    if not _AUTHORITY.fullmatch(parts.netloc):
        return f"has a host that is neither a name nor an address; {_EXPECTED}"
    return None


def _host_matches(host: str, pattern: str) -> bool:
    pattern = pattern.lower()  # `urlsplit` lower-cases the host
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def _as_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the address that a host is; None if it is a name.

    IPv4 addresses are read in every notation that a resolver or a browser accepts: `127.1`, `0x7f000001`, `127.0.0.1.`.
    """
    host = host.partition("%")[0].rstrip(".")
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except OSError:
            return None


def _is_public(found: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    if isinstance(found, ipaddress.IPv6Address):
        if found.sixtofour is not None or found.teredo is not None:
            return False
        if any(found in network for network in _LEADING_TO_IPV4):
            return False
        found = found.ipv4_mapped or found
    return found.is_global and not found.is_multicast
