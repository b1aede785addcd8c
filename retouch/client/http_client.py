"""Sends pictures to a running server, retries while it is overloaded, and raises an error for a problem reply.

ClientError
├── ServerUnreachable   no reply: connection refused, timed out or cut off
└── RequestRefused      the server answered with a problem (RFC 9457)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

import httpx

from engines.errors import RetouchError
from retouch.client.api_key import key_headers

Task = Literal["inpaint", "translate", "generate"]
_BUSY = {429, 503}
_ACCEPT = {"Accept": "multipart/mixed, */*"}
"""Asks for several pictures as multipart/mixed rather than base64 in JSON."""


class ClientError(RetouchError):
    """The server did not deliver a picture."""


class ServerUnreachable(ClientError):
    """There was no reply: connection refused, timed out or cut off."""


class RequestRefused(ClientError):
    """The server answered with a problem; `status` and `code` are the reply's."""

    def __init__(self, message: str, *, status: int, code: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class FillResult:
    """The finished, encoded pictures of one request, and the model and engine that made them."""

    bodies: tuple[bytes, ...]
    model: str
    engine: str


class Filler(Protocol):
    """An object that makes pictures, on a server (HttpFiller) or in this process (filling/embedded.py)."""

    async def fill(self, task: Task, parts: Mapping[str, bytes], options: Mapping[str, str]) -> FillResult:
        """Fill or translate one picture, or generate pictures.

        Args:
            task: inpaint, translate or generate.
            parts: encoded files by form field: `image`, `mask` to inpaint, `instance` or `reference` for some models.
            options: the text fields of the endpoint.

        Raises:
            RetouchError: the picture cannot be made; the message says why.
        """


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and after which pauses a request to an overloaded server is repeated."""

    retries: int = 8
    longest_pause_s: float = 60.0

    def pause_s(self, attempt: int, retry_after: str | None) -> float | None:
        """Return the seconds until the next try; None to give up.

        Args:
            attempt: tries made so far, from 1.
            retry_after: the header's value; without one (or with a date) the pause doubles from half a second.
        """
        if attempt > self.retries:
            return None
        asked_s = float(retry_after) if retry_after and retry_after.isdigit() else 0.5 * 2 ** (attempt - 1)
        return min(asked_s, self.longest_pause_s)


class HttpFiller:
    """Makes pictures on a server over HTTP."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        policy: RetryPolicy,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._client = client
        self._policy = policy
        self._sleep = sleep

    async def fill(self, task: Task, parts: Mapping[str, bytes], options: Mapping[str, str]) -> FillResult:
        """Make the pictures of one request; see `Filler`.

        Raises:
            ServerUnreachable: there was no reply.
            RequestRefused: the server answered with a problem, or was still overloaded at the last try.
        """
        attempt, request_id = 0, ""
        while True:
            attempt += 1
            response = await self._post(task, parts, options, request_id)
            # sent again on a retry: the server admits a returning request first
            request_id = response.headers.get("X-Request-ID", "")
            if response.status_code == httpx.codes.OK:
                headers = response.headers
                return FillResult(_bodies(response), headers.get("X-Model", ""), headers.get("X-Engine", ""))
            pause_s = self._policy.pause_s(attempt, response.headers.get("Retry-After"))
            if response.status_code not in _BUSY or pause_s is None:
                raise _refusal(response, attempt)
            await self._sleep(pause_s)

    async def _post(
        self, task: Task, parts: Mapping[str, bytes], options: Mapping[str, str], request_id: str
    ) -> httpx.Response:
        files: dict[str, tuple[str | None, bytes | str]] = {name: (name, data) for name, data in parts.items()}
        fields = {name: (None, value) for name, value in options.items()}  # makes the body multipart even without files
        headers = {**_ACCEPT, "X-Request-ID": request_id} if request_id else _ACCEPT
        try:
            return await self._client.post(f"/v1/{task}", files={**files, **fields}, headers=headers)
        except httpx.TimeoutException as error:
            raise ServerUnreachable(f"{self._client.base_url} did not answer in time; raise --timeout") from error
        except httpx.TransportError as error:
            raise ServerUnreachable(
                f"{self._client.base_url} cannot be reached ({error}); is `retouch serve` running there?"
            ) from error


def _bodies(response: httpx.Response) -> tuple[bytes, ...]:
    """Split a reply into pictures: one, or the parts of a multipart/mixed body."""
    content_type = response.headers.get("Content-Type", "")
    if not content_type.startswith("multipart/mixed"):
        return (response.content,)
    delimiter = b"\r\n--" + content_type.partition("boundary=")[2].strip('"').encode("latin-1")
    _, *parts, _ = (b"\r\n" + response.content).split(delimiter)
    return tuple(part.partition(b"\r\n\r\n")[2] for part in parts)


def validated_url(url: str) -> str:
    """Validate a server's address and strip slashes at its end.

    Raises:
        ServerUnreachable: it is not an http(s) address.
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # a port that is not a number, or a broken IPv6 address
        valid = False
    if not valid:
        raise ServerUnreachable(f"{url!r} is no address of a server; write http://HOST:PORT")
    return url.rstrip("/")


def code_and_detail(body: bytes) -> tuple[str, str]:
    """Return `code` and `detail` of a problem reply; for other bodies an empty code and the start of the text."""
    try:
        problem: Any = httpx.Response(200, content=body).json()
        return str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        return "", body[:200].decode("utf-8", "replace")


def _refusal(response: httpx.Response, attempts: int) -> RequestRefused:
    code, detail = code_and_detail(response.content)
    tried = f" ({attempts} tries)" if attempts > 1 else ""
    return RequestRefused(
        f"{response.status_code} {code or response.reason_phrase}: {detail}{tried}",
        status=response.status_code,
        code=code,
    )


@asynccontextmanager
async def open_http_filler(
    url: str,
    *,
    timeout_s: float,
    connections: int,
    retries: int,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[HttpFiller]:
    """Open a filler for the server at `url`.

    Raises:
        ServerUnreachable: `url` is not an http(s) address.
        KeyFileUnreadable: the file with the API key cannot be read.
    """
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    address, headers = validated_url(url), key_headers()
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=timeout_s, limits=limits) as client:
        yield HttpFiller(client, RetryPolicy(retries), sleep)
