"""Where webhooks may go: never to an address inside the network, whatever a name resolves to (SSRF).

What can be known is refused when a job is submitted. The address that is checked then is not the one that counts: at
every try checking and resolving are one step, and the address that was checked is the one that is connected to, so that
a name cannot point elsewhere a moment later. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from aiohttp.abc import AbstractResolver, ResolveResult

from service.core.errors import InvalidOption

Resolve = Callable[[str, int, int], Awaitable[list[Any]]]
"""As `loop.getaddrinfo`: host, port, family."""
_NOT_PUBLIC = "goes to an address that is not public"
_RESOLVE_WITHIN_S = 2.0
"""While a client waits for its 202; a name that takes longer is judged when the webhook is sent."""
_LONGEST_URL = 2048
_LEADING_TO_IPV4 = tuple(map(ipaddress.ip_network, ("::/96", "64:ff9b::/96", "64:ff9b:1::/48")))
"""IPv4-compatible, and NAT64 (RFC 6052, RFC 8215): what they end at is decided elsewhere."""


@dataclass(frozen=True, slots=True)
class Destinations:
    """What is allowed.

    hosts: names, `*.example.com` for all below; empty for all.
    private: whether plain HTTP and addresses that are not public are, too.
    """

    hosts: tuple[str, ...] = ()
    private: bool = False

    def check(self, url: str) -> None:
        """Refuse what can be refused from the URL alone.

        Raises:
            InvalidOption: code `webhook_refused`; the message says why.
        """
        if why := self._refusal(url):
            raise InvalidOption(f"`webhook` {why}", code="webhook_refused")

    async def check_name(self, url: str, resolve: Resolve) -> None:
        """Refuse a URL whose name leads to an address that is not public now; `check` has let it through.

        A name that cannot be resolved now may be known later: it is not refused.

        Raises:
            InvalidOption: as `check`.
        """
        parts = urlsplit(url)
        if self.private or not parts.hostname or _is_address(parts.hostname):
            return
        try:
            found = await asyncio.wait_for(resolve(parts.hostname, parts.port or 443, 0), _RESOLVE_WITHIN_S)
        except (OSError, asyncio.TimeoutError):
            return
        if not all(self.allows_address(info[4][0]) for info in found):
            raise InvalidOption(f"`webhook` {_NOT_PUBLIC}", code="webhook_refused")

    def allows_address(self, address: str) -> bool:
        """Whether a connection to that IP address may be made."""
        return self.private or _is_public(address)

    def _refusal(self, url: str) -> str | None:
        parts = _parsed(url)
        if parts is None or not (host := parts.hostname):
            return "is no URL"
        if parts.scheme not in (("https", "http") if self.private else ("https",)):
            return "must be an https:// URL"
        if parts.username is not None or parts.password is not None:
            return "must not carry a user name or password"
        if self.hosts and not any(_matches(host, pattern) for pattern in self.hosts):
            return f"goes to {host[:80]}, which this server does not send to"
        if self._is_inside(host):
            return _NOT_PUBLIC
        return None

    def _is_inside(self, host: str) -> bool:
        """Whether the host alone, unresolved, says that it is not public; every `localhost` is here (RFC 6761)."""
        is_local = f".{host.rstrip('.')}".endswith(".localhost")
        return (is_local and not self.private) or (_is_address(host) and not self.allows_address(host))


class AddressRefused(OSError):
    """A name leads to an address that webhooks may not go to."""


class CheckedResolver(AbstractResolver):
    """Names to addresses for the HTTP client, which connects to nothing else."""

    def __init__(self, destinations: Destinations, resolve: Resolve) -> None:
        self._destinations = destinations
        self._resolve = resolve

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a name.

        Raises:
            AddressRefused: one of them is not public.
            OSError: there is none.
        """
        found = await self._resolve(host, port, family)
        addresses = [(info[0], info[4][0]) for info in found]
        if not all(self._destinations.allows_address(address) for _, address in addresses):
            raise AddressRefused(f"{host} resolves to an address that is not public")
        return [
            ResolveResult(
                hostname=host, host=address, port=port, family=kind, proto=0, flags=int(socket.AI_NUMERICHOST)
            )
            for kind, address in addresses
        ]

    async def close(self) -> None:
        """Nothing is held."""


def _parsed(url: str) -> SplitResult | None:
    if len(url) > _LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    return None if port == 0 else parts


def _matches(host: str, pattern: str) -> bool:
    return host.endswith(pattern[1:]) if pattern.startswith("*.") else host == pattern


def _is_address(host: str) -> bool:
    """Whether the host is an address in any notation that a resolver takes: `127.1` and `0x7f000001` are."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            socket.inet_aton(host)
        except OSError:
            return False
    return True


def _is_public(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # an old notation of IPv4
        found = ipaddress.ip_address(socket.inet_aton(address))
    if isinstance(found, ipaddress.IPv6Address):
        if found.sixtofour is not None or found.teredo is not None:
            return False
        if any(found in network for network in _LEADING_TO_IPV4):
            return False
        found = found.ipv4_mapped or found
    return found.is_global and not found.is_multicast
