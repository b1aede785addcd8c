"""The address, key and timeouts of both clients' requests, and their exchanges. No I/O."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from retouch.client.address import for_messages, validated_url
from retouch.client.api_key import key_headers
from retouch.client.calls import Call
from retouch.client.errors import ClientClosed
from retouch.client.exchanges import Exchanges, LostReply
from retouch.client.retrying import RetryPolicy

DEFAULT_URL = "http://127.0.0.1:8000"
_CONNECT_S = 5.0
_MAX_TIMEOUT_S = 1e6
"""Longest timeout in seconds, eleven days: sockets refuse infinity and some longer ones."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Everything about a server that each request needs."""

    url: str
    headers: Mapping[str, str]
    timeout_s: float

    @classmethod
    def to(cls, url: str, api_key: str | None, timeout_s: float) -> Connection:
        """Return the connection to a server; arguments and errors as for `Retouch`."""
        if not timeout_s > 0:
            raise ValueError(f"timeout_s is {timeout_s}; pass seconds above 0")
        return cls(validated_url(url), key_headers(api_key), min(timeout_s, _MAX_TIMEOUT_S))

    def request(self, call: Call) -> dict[str, Any]:
        """Return the arguments of httpx's `request`."""
        timeout_s = self.timeout_s if call.within_s is None else min(self.timeout_s, call.within_s)
        return {
            "method": call.method,
            "url": self.url + call.path,
            "headers": {**self.headers, **call.headers},
            "files": call.multipart(),
            "timeout": httpx.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s)),
            "follow_redirects": False,  # the key must not reach another server
        }


def exchanges_with(connection: Connection, retry: RetryPolicy | int) -> Exchanges:
    """Return the exchanges of a client; a number for `retry` is the number of retries.

    Raises:
        ValueError: `retry` is neither a number of at least 0 nor a policy.
    """
    if not isinstance(retry, RetryPolicy) and not (isinstance(retry, int) and retry >= 0):
        raise ValueError(f"retry is {retry!r}; pass a number of retries from 0, or a RetryPolicy")
    policy = RetryPolicy(retry) if isinstance(retry, int) else retry
    return Exchanges(for_messages(connection.url), policy, random.random, time.monotonic)


def new_key() -> str:
    """Return a new idempotency key."""
    return uuid.uuid4().hex


def lost(error: httpx.RequestError) -> LostReply:
    """Convert an error of httpx; a timeout of the connection, unlike one of the reply, may be retried."""
    timed_out = isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout)
    return LostReply(error, timed_out)


def closed_error() -> ClientClosed:
    """Return the error for a call with a closed client."""
    return ClientClosed("the client is closed; make the call before close() or inside `with`, or make a new client")
