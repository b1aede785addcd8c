"""The application: the direct route to the image calls skips no layer."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from engines.fake import FakeEngine, Hang
from service.web.routes import image_calls
from tests.service.web.raw_request import head_of
from tests.serving.waiting import wait_until

Serve = Callable[..., Any]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_that_offers_http2_gets_its_picture(serve: Serve, tmp_path: Path) -> None:
    url = serve().url
    data = Path(__file__).parents[2] / "data"
    forms = ["-F", f"image=@{data / 'dress.jpg'}", "-F", f"mask=@{data / 'dress_mask.png'}"]
    command = ["curl", "--silent", "--http2", *forms, "-o", str(tmp_path / "filled.png"), "-w", "%{http_code}"]
    said = subprocess.run([*command, f"{url}/v1/inpaint"], capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout == "200"
    assert (tmp_path / "filled.png").read_bytes().startswith(b"\x89PNG")


def test_every_call_that_takes_work_goes_the_short_way() -> None:
    assert {route.path for route in image_calls()} == {"/v1/inpaint", "/v1/translate", "/v1/generate"}


def test_what_goes_the_short_way_is_counted_by_its_path_and_has_an_id(serve: Serve, files: dict[str, Any]) -> None:
    with serve().client() as client:
        reply = client.post("/v1/inpaint", files=files, headers={"X-Request-ID": "mine"})
        assert (reply.status_code, reply.headers["x-request-id"]) == (200, "mine")
        series = 'retouch_request_duration_seconds_count{code="200",endpoint="/v1/inpaint",model="photos/1"} 1.0'
        assert series in client.get("/metrics").text


@pytest.mark.parametrize("path", ["/v1/inpaint", "/v1/translate", "/v1/generate"])
def test_other_methods_and_errors_are_problems_as_everywhere(serve: Serve, path: str) -> None:
    with serve().client() as client:
        assert client.get(path).json()["code"] == "method_not_allowed"
        refused = client.post(path, content=b"x", headers={"Content-Type": "text/plain"})
        assert (refused.status_code, refused.json()["code"]) == (415, "unsupported_type")


def test_a_client_that_closed_its_side_is_sent_nothing(serve: Serve, files: dict[str, Any]) -> None:
    """Its request counts as one whose client left, not as a handler that sent no response (500)."""
    end, blank = threading.Event(), lambda feed: not feed["image"].any()  # warm-ups are blank
    running = serve(lambda manifest: FakeEngine(manifest, fault=lambda feed: None if blank(feed) else Hang(end)))
    request = httpx.Request("POST", f"{running.url}/v1/inpaint", files=files)
    raw = head_of(request) + request.read()
    parts = urlsplit(running.url)
    with ExitStack() as stack:
        stack.callback(end.set)
        leaving = [
            stack.enter_context(socket.create_connection((parts.hostname, parts.port), timeout=30)) for _ in range(40)
        ]
        for connection in leaving:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
        assert {connection.recv(65_536) for connection in leaving} == {b""}
    with running.client() as client:
        wait_until(lambda: "retouch_requests_in_flight 0.0" in client.get("/metrics").text)
