"""Methods: HEAD answers as GET, without a body; a 405 names every method that the path takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from service.web import routes
from service.web.docs import page as docs
from service.web.middleware.methods import allowed_methods, heads_of
from service.web.results import routes as results
from tests.serving.local_server import Running

Serve = Callable[..., Any]
Files = dict[str, tuple[str, bytes, str]]
STEADY = ("content-type", "etag", "cache-control", "vary", "content-security-policy")


def readable() -> list[str]:
    """Return the path of every route that takes GET, with an id that does not exist."""
    routers = (routes.router, results.router, results.gallery_router, docs.router)
    found = [route for router in routers for route in router.routes]
    gets = [route.path for route in found if isinstance(route, APIRoute) and "GET" in (route.methods or ())]
    return sorted({path.format(job_id="0" * 32, result_id="0" * 32, name="photos", version=1) for path in gets})


def assert_same_without_body(client: httpx.Client, path: str, **headers: str) -> int:
    got, head = client.get(path, headers=headers), client.head(path, headers=headers)
    assert (head.status_code, head.content) == (got.status_code, b"")
    for name in STEADY:
        assert head.headers.get(name) == got.headers.get(name), (path, name)
    assert path == "/metrics" or head.headers["content-length"] == got.headers["content-length"]  # it counts both
    assert client.get("/livez").status_code == 200, "the connection goes on"
    return got.status_code


def test_head_is_answered_as_get_without_a_body_wherever_get_is_taken(serve: Serve) -> None:
    paths = readable()
    assert {"/docs", "/v1/models", "/metrics", "/openapi.json"} <= set(paths)
    with serve().client() as client:
        answered = {path: assert_same_without_body(client, path) for path in paths}
    assert {path for path, status in answered.items() if status != 200} == {
        "/v1/jobs/" + "0" * 32,
        "/v1/results/" + "0" * 32,
        "/v1/results/" + "0" * 32 + "/thumbnail",
    }


def test_head_of_a_result_and_of_a_job_is_that_of_get(server: Running, files: Files) -> None:
    with server.client() as client:
        result = client.post("/v1/inpaint", files=files).headers["location"]
        job = client.post("/v1/inpaint", files=files, headers={"Prefer": "respond-async"}).headers["location"]
        for path, accept in ((result, "*/*"), (result, "application/json"), (job, "*/*")):
            got, head = client.get(path, headers={"Accept": accept}), client.head(path, headers={"Accept": accept})
            assert (head.status_code, head.headers["content-type"]) == (200, got.headers["content-type"])
            assert head.content == b""


def test_head_routes_are_not_in_the_document(server: Running) -> None:
    with server.client() as client:
        paths = client.get("/openapi.json").json()["paths"]
    assert not [path for path, operations in paths.items() if "head" in operations]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "/v1/jobs/abc", "DELETE, GET, HEAD"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("POST", "/docs", "GET, HEAD"),
        ("HEAD", "/v1/inpaint", "POST"),
        ("GET", "/v1/generate", "POST"),
    ],
)
def test_a_refused_method_gets_the_allowed_ones(server: Running, method: str, path: str, allow: str) -> None:
    with server.client() as client:
        reply = client.request(method, path)
    assert (reply.status_code, reply.headers["allow"]) == (405, allow)


def test_a_page_elsewhere_may_send_head_with_a_key(serve: Serve) -> None:
    asks = {
        "Origin": "https://page.example",
        "Access-Control-Request-Method": "HEAD",
        "Access-Control-Request-Headers": "Authorization",
    }
    with serve(cors_origins="https://page.example").client() as client:
        assert client.options("/v1/models", headers=asks).status_code == 200


def test_heads_are_made_of_routes_that_take_get_alone() -> None:
    heads = heads_of(routes.router).routes
    assert {tuple(route.methods) for route in heads if isinstance(route, APIRoute)} == {("HEAD",)}
    assert allowed_methods([heads_of(routes.router)], {"type": "http", "method": "GET", "path": "/v1/inpaint"}) == ""
