"""Makes pictures on a server with the Python client, whose errors become errors of the command."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import httpx

from retouch.client import AsyncRetouch, Result, RetryPolicy
from retouch.client.errors import ClientError
from retouch.client.options import Task
from retouch.filling.filler import FillFailed, FillResult


@dataclass(frozen=True, slots=True)
class ServerFiller:
    """Makes pictures on a server."""

    client: AsyncRetouch

    async def fill(self, task: Task, parts: Mapping[str, bytes], options: Mapping[str, str]) -> FillResult:
        """Make the pictures of one request; see `Filler`.

        Raises:
            FillFailed: at the last try, too, there was no reply, or the server refused the request.
        """
        call: Callable[..., Awaitable[Result]] = getattr(self.client, task)
        with client_errors_translated():  # no idempotency key: with one, the server would keep each answer for a day
            result = await call(**parts, **options, idempotency_key=None)
        return FillResult(tuple(picture.bytes for picture in result.pictures), result.model, result.engine)


@asynccontextmanager
async def open_server_filler(url: str, *, timeout_s: float, retries: int) -> AsyncIterator[ServerFiller]:
    """Open a filler for the server at `url`; requests are retried if the server is busy, not if it is unreachable.

    Raises:
        FillFailed: `url` is not an http(s) address, or the API key cannot be used.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)  # --concurrency is the limit
    async with httpx.AsyncClient(limits=limits) as http_client:
        with client_errors_translated():
            retry = RetryPolicy(retries, unexplained=0)
            client = AsyncRetouch(url, retry=retry, timeout_s=timeout_s, http_client=http_client)
        yield ServerFiller(client)


@contextmanager
def client_errors_translated() -> Iterator[None]:
    """Translate an error of the client into one of the command, which prints it as one line."""
    try:
        yield
    except ClientError as error:
        raise FillFailed(str(error)) from error
