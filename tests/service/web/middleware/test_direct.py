"""The short way to the image calls leaves nothing out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from service.web.routes import image_calls
from tests.serving.local_server import Running

Serve = Callable[..., Any]


def test_every_call_that_takes_work_goes_the_short_way() -> None:
    assert {route.path for route in image_calls()} == {"/v1/inpaint", "/v1/translate", "/v1/generate"}


def test_what_goes_the_short_way_is_counted_by_its_path_and_has_an_id(serve: Serve, files: dict[str, Any]) -> None:
    with serve().client() as client:
        reply = client.post("/v1/inpaint", files=files, headers={"X-Request-ID": "mine"})
        assert (reply.status_code, reply.headers["x-request-id"]) == (200, "mine")
        series = 'retouch_request_duration_seconds_count{code="200",endpoint="/v1/inpaint",model="photos/1"} 1.0'
        assert series in client.get("/metrics").text


@pytest.mark.parametrize("path", ["/v1/inpaint", "/v1/translate", "/v1/generate"])
def test_other_methods_and_errors_are_problems_as_everywhere(server: Running, path: str) -> None:
    with server.client() as client:
        assert client.get(path).json()["code"] == "method_not_allowed"
        refused = client.post(path, content=b"x", headers={"Content-Type": "text/plain"})
        assert (refused.status_code, refused.json()["code"]) == (415, "unsupported_type")
