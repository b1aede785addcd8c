"""Sends with aiohttp, as many connections as it takes.

httpx, which the rest of the command uses, costs 1.8 ms of CPU for a request of 60 KB and its reply; this costs 0.1.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
import httpx

from retouch.bench.load import NO_REPLY, Answer, Payload
from retouch.client.api_key import key_headers
from retouch.client.http_client import checked_url, problem_code


class HttpSender:
    """A Sender for a server at one address."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def send(self, payload: Payload) -> Answer:
        """Post it; a transport error is an Answer without status."""
        try:
            async with self._session.post(
                self._url + payload.path, data=payload.body, headers={"Content-Type": payload.content_type}
            ) as response:
                body = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            return Answer(NO_REPLY, type(error).__name__, str(error))
        headers = response.headers
        if response.status != 200:
            return Answer(response.status, *problem_code(body))
        return Answer(
            response.status,
            server_timing=headers.get("Server-Timing", ""),
            batch_size=headers.get("X-Batch-Size", ""),
            model=headers.get("X-Model", ""),
            engine=headers.get("X-Engine", ""),
        )


@asynccontextmanager
async def open_sender(url: str) -> AsyncIterator[HttpSender]:
    """A sender without limits on connections or time: the driver must not be what requests wait for.

    Raises:
        ServerUnreachable: `url` is no http(s) address.
        KeyFileUnreadable: the API key should come from a file that cannot be read.
    """
    address = checked_url(url)
    async with aiohttp.ClientSession(
        headers=key_headers(),
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
    ) as session:
        yield HttpSender(session, address)


def encode(path: str, parts: Mapping[str, bytes], fields: Mapping[str, str]) -> Payload:
    """A multipart request, encoded once."""
    files = {name: (name, data) for name, data in parts.items()}
    request = httpx.Request("POST", "http://encoded-only", files=files, data=dict(fields))
    return Payload(path, request.headers["Content-Type"], request.read())
