"""The HTTP client that sends webhooks, and the results of delivery attempts.

The client connects only to addresses that were checked, and limits the interim responses (status 100 to 199) before the
final one. aiohttp would read any number of them without yielding, so a receiver that never stopped sending them could
block the event loop.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection

from service.core.errors import InvalidOption
from service.jobs.webhook_targets import Destinations, Resolve

_MAX_RESPONSES = 100
"""Limit of responses to one request, interim ones and the final one; a slow receiver may send one a second."""


_GONE = 410
Outcome = Literal["delivered", "failed", "given_up"]
STATES: dict[Outcome, Literal["delivered", "pending", "failed"]] = {
    "delivered": "delivered",
    "failed": "pending",
    "given_up": "failed",
}
"""Delivery state that clients see after each outcome of an attempt."""


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The result of one delivery attempt.

    status: HTTP status of the response; 0 if there was no response.
    reason: why the message does not count as delivered; None if it does.
    refused: whether webhooks may not go to the target.
    """

    status: int
    reason: str | None = None
    refused: bool = False

    def outcome(self, *, is_last: bool) -> Outcome:
        """Return what the attempt means for its message; `is_last`: whether no further attempt is allowed."""
        if 200 <= self.status < 300:
            return "delivered"
        return "given_up" if self.refused or self.status == _GONE or is_last else "failed"


class AddressRefused(OSError):
    """A host name resolves to an address to which webhooks may not be sent."""


class CheckedResolver(AbstractResolver):
    """The HTTP client's resolver, which returns only allowed addresses."""

    def __init__(self, destinations: Destinations, resolve: Resolve) -> None:
        self._destinations = destinations
        self._resolve = resolve
        self.looking_up: Counter[str] = Counter()
        """Number of look-ups under way, by host name."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Resolve a name to its addresses.

        Raises:
            AddressRefused: one of them is not public.
            OSError: the name does not resolve.
        """
        self.looking_up[host] += 1
        try:
            found = await self._resolve(host, port, family)
        finally:
            self.looking_up[host] -= 1
            self.looking_up += Counter()  # removes entries that are 0
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
        """Do nothing: there are no resources to release."""


class EndlessResponse(aiohttp.ClientError):
    """A receiver sent too many interim responses."""


class FinalResponse(aiohttp.ClientResponse):
    """A response that limits the interim responses before it; the client uses it as its response class."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """Read interim responses and the head of the final one.

        Raises:
            EndlessResponse: the limit was reached before the final response.
        """
        protocol: Any = connection.protocol
        read, left = protocol.read, _MAX_RESPONSES

        async def read_counted() -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise EndlessResponse
            return await read()

        protocol.read = read_counted
        return await super().start(connection)


def open_client(resolver: CheckedResolver) -> aiohttp.ClientSession:
    """Return the HTTP client; its caller limits the number and the duration of attempts."""
    return aiohttp.ClientSession(
        # no DNS cache: each attempt resolves the name again, or shares a look-up of it that is under way
        connector=aiohttp.TCPConnector(limit=0, resolver=resolver, ttl_dns_cache=0, force_close=True),
        timeout=aiohttp.ClientTimeout(total=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        response_class=FinalResponse,
    )


def why_not_delivered(status: int) -> str | None:
    """Return why a response does not count as delivered; None if it does."""
    if 200 <= status < 300:
        return None
    reason = f"the receiver answered with status {status}"
    return f"{reason}; redirects are not followed" if 300 <= status < 400 else reason


def attempt_without_response(error: Exception) -> AttemptResult:
    """Explain why there was no response, without revealing anything about the server's network."""
    if isinstance(error, InvalidOption) or isinstance(error.__cause__, AddressRefused):
        return AttemptResult(0, "this server does not send webhooks to that address", refused=True)
    reasons: dict[type[Exception], str] = {  # the first match
        aiohttp.ClientConnectorDNSError: "the receiver's host name cannot be resolved",
        aiohttp.ClientSSLError: "the receiver's TLS certificate or version is not accepted",
        asyncio.TimeoutError: "the receiver did not answer in time",
        EndlessResponse: "the receiver's response does not end",
        aiohttp.ClientConnectorError: "the receiver refused the connection or is unreachable",
    }
    return AttemptResult(
        0, next((said for kind, said in reasons.items() if isinstance(error, kind)), "the connection broke")
    )
