"""The resolver of the client that sends webhooks: it connects to the very addresses that were checked."""

from __future__ import annotations

import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from service.jobs.webhook_targets import Destinations, Resolve


class AddressRefused(OSError):
    """A name resolves to an address that webhooks may not go to."""


class CheckedResolver(AbstractResolver):
    """The HTTP client's resolver, which returns only allowed addresses."""

    def __init__(self, destinations: Destinations, resolve: Resolve) -> None:
        self._destinations = destinations
        self._resolve = resolve

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Resolve a name to its addresses.

        Raises:
            AddressRefused: one of them is not public.
            OSError: the name does not resolve.
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
        """Do nothing: there are no resources to release."""
