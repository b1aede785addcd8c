"""The HTTP client that sends webhooks, and what an attempt came to.

It connects to the addresses that were checked, and reads no endless answer.

At most a few interim responses (100 to 199) may precede an answer. aiohttp accepts any number of them without a pause,
so a receiver that never stopped sending them could block the event loop.
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

_MOST_HEADS = 100
"""Interim answers and the final one: a receiver that works for a while sends one a second."""


_GONE = 410
Outcome = Literal["delivered", "failed", "given_up"]
STATES: dict[Outcome, Literal["delivered", "pending", "failed"]] = {
    "delivered": "delivered",
    "failed": "pending",
    "given_up": "failed",
}
"""State of the delivery that clients are told after each outcome."""


@dataclass(frozen=True, slots=True)
class AttemptResult:
    """The result of one attempt to deliver.

    status: of the response; 0 without one.
    reason: why it does not count as delivered; None if it does.
    refused: whether the target is forbidden.
    """

    status: int
    reason: str | None = None
    refused: bool = False

    def outcome(self, *, is_last: bool) -> Outcome:
        """Meaning for the message; `is_last`: whether another attempt would be one too many."""
        if 200 <= self.status < 300:
            return "delivered"
        return "given_up" if self.refused or self.status == _GONE or is_last else "failed"


class AddressRefused(OSError):
    """A name resolves to an address that webhooks may not go to."""


class CheckedResolver(AbstractResolver):
    """The HTTP client's resolver, which returns only allowed addresses."""

    def __init__(self, destinations: Destinations, resolve: Resolve) -> None:
        self._destinations = destinations
        self._resolve = resolve
        self.looking_up: Counter[str] = Counter()
        """Look-ups under way, by name: there may be few at a time."""

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
            self.looking_up += Counter()  # forgets those that are at 0
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


class AnswerEndless(aiohttp.ClientError):
    """A receiver does not stop sending interim responses."""


class FinalAnswer(aiohttp.ClientResponse):
    """An answer whose heads are counted; the client makes it in place of its own."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """Read the heads up to the final one.

        Raises:
            AnswerEndless: it does not come.
        """
        protocol: Any = connection.protocol
        read, left = protocol.read, _MOST_HEADS

        async def read_counted() -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise AnswerEndless
            return await read()

        protocol.read = read_counted
        return await super().start(connection)


def open_client(resolver: CheckedResolver) -> aiohttp.ClientSession:
    """The HTTP client; its caller limits the number and the duration of attempts."""
    return aiohttp.ClientSession(
        # each attempt resolves its name again, unless another attempt is resolving it at that moment
        connector=aiohttp.TCPConnector(limit=0, resolver=resolver, ttl_dns_cache=0, force_close=True),
        timeout=aiohttp.ClientTimeout(total=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        response_class=FinalAnswer,
    )


def why_not_delivered(status: int) -> str | None:
    """Return why a response does not count as delivered; None if it does."""
    if 200 <= status < 300:
        return None
    return f"answered {status}, and redirects are not followed" if 300 <= status < 400 else f"answered {status}"


def attempt_without_response(error: Exception) -> AttemptResult:
    """Explain why there was no response, in words that reveal nothing about the server's network."""
    if isinstance(error, InvalidOption) or isinstance(error.__cause__, AddressRefused):
        return AttemptResult(0, "goes where this server sends no webhooks", refused=True)
    reasons: dict[type[Exception], str] = {  # the first match
        aiohttp.ClientConnectorDNSError: "its name cannot be resolved",
        aiohttp.ClientSSLError: "its certificate or its TLS is not accepted",
        asyncio.TimeoutError: "no answer in time",
        AnswerEndless: "its answer does not end",
        aiohttp.ClientConnectorError: "it cannot be connected to",
    }
    return AttemptResult(
        0, next((said for kind, said in reasons.items() if isinstance(error, kind)), "the connection broke")
    )
