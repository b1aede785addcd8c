"""The parts of a reply that tests read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

from tests.serving.waiting import wait_until

Files = dict[str, tuple[str, bytes, str]]
Serve = Callable[..., Any]


def check_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    body: dict[str, Any] = response.json()
    assert (response.status_code, body["code"]) == (status, code), body
    assert response.headers["content-type"] == "application/problem+json"
    assert body["status"] == status
    assert body["request_id"] == response.headers["x-request-id"]
    assert body["type"] == f"urn:retouch:problem:{code}"
    assert body["title"]
    assert body["detail"]
    assert body["instance"].startswith("/")
    return body


def poll(client: httpx.Client, url: str) -> dict[str, Any]:
    """The job's document once it has ended."""
    body: dict[str, Any] = {}

    def ended() -> bool:
        body.update(client.get(url).json())
        return body["status"] not in ("queued", "running")

    wait_until(ended)
    return body
