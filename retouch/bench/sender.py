"""Sends requests with aiohttp, without a limit on connections.

httpx, which the other commands use, costs 1.8 ms of CPU for a request of 60 KB and its reply; aiohttp costs 0.1 ms.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
import httpx

from retouch.bench.load import NO_REPLY, Payload, ServerReply
from retouch.client.address import for_messages, validated_url
from retouch.client.api_key import key_headers
from retouch.client.replies import code_and_detail
from retouch.filling.server import client_errors_translated


class HttpSender:
    """Sends requests to one server; implements Sender."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def send(self, payload: Payload) -> ServerReply:
        """Post a request; a transport error gives a ServerReply with status 0."""
        try:
            async with self._session.post(
                self._url + payload.path, data=payload.body, headers={"Content-Type": payload.content_type}
            ) as response:
                body = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            return ServerReply(NO_REPLY, type(error).__name__, _why_no_reply(error, for_messages(self._url)))
        headers = response.headers
        if response.status != 200:
            return ServerReply(response.status, *code_and_detail(body))
        return ServerReply(
            response.status,
            server_timing=headers.get("Server-Timing", ""),
            batch_size=headers.get("X-Batch-Size", ""),
            model=headers.get("X-Model", ""),
            engine=headers.get("X-Engine", ""),
        )


@asynccontextmanager
async def open_sender(url: str) -> AsyncIterator[HttpSender]:
    """Open a sender without limits on connections or time, so that requests never wait for the generator.

    Raises:
        FillFailed: `url` is not an http(s) address, or the file with the API key cannot be read.
    """
    with client_errors_translated():
        address, headers = validated_url(url), key_headers()
    async with aiohttp.ClientSession(
        headers=headers,
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
    ) as session:
        yield HttpSender(session, address)


def _why_no_reply(error: Exception, url: str) -> str:
    """Return a transport error in plain words: the texts of aiohttp and asyncio name their own options and calls."""
    if not isinstance(error, aiohttp.ClientConnectorError):
        return f"{url} gave no reply ({error or type(error).__name__})"
    cause = error.os_error
    why = cause.strerror or str(cause)
    if isinstance(cause, ConnectionError) and cause.errno is not None:
        why = os.strerror(cause.errno)
    return f"no server answers at {url} ({why}); is `retouch serve` running there?"


def encode(path: str, parts: Mapping[str, bytes], fields: Mapping[str, str]) -> Payload:
    """Encode a multipart request."""
    files = {name: (name, data) for name, data in parts.items()}
    request = httpx.Request("POST", "http://encoded-only", files=files, data=dict(fields))
    return Payload(path, request.headers["Content-Type"], request.read())
