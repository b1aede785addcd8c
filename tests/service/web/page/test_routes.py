"""The page: served from the package, with a strict policy, small, and only if it is enabled."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin

import pytest

from service.web.page.files import PAGE_PATHS
from tests.serving.local_server import Running

Serve = Callable[..., Any]
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' blob:",
    "connect-src": "'self'",
    "worker-src": "'self'",
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
TYPES = {"/": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@pytest.mark.parametrize("path", PAGE_PATHS)
def test_every_file_is_answered_with_its_type_and_the_policy(server: Running, path: str) -> None:
    with server.client() as client:
        reply = client.get(path)
        head = client.head(path)
    assert reply.status_code == head.status_code == 200
    assert head.content == b""
    assert head.headers["content-length"] == reply.headers["content-length"]
    assert reply.headers["content-type"].startswith(next(kind for end, kind in TYPES.items() if path.endswith(end)))
    assert reply.headers["x-content-type-options"] == "nosniff"
    rules = (rule.strip().partition(" ") for rule in reply.headers["content-security-policy"].split(";"))
    assert {name: value for name, _, value in rules} == POLICY


def test_the_page_loads_nothing_but_its_own_files_by_relative_addresses(server: Running) -> None:
    with server.client() as client:
        page = client.get("/").text
    wanted = [name for name in re.findall(r'(?:src|href)="?([^"#\s>]+)', page) if name != "docs"]
    assert {urljoin("/", name) for name in wanted} == set(PAGE_PATHS) - {"/"}
    assert {urljoin("/behind/a/prefix/", name)[:17] for name in wanted} == {"/behind/a/prefix/"}
    assert re.findall(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", page) == []


def test_the_script_calls_the_api_by_relative_addresses(server: Running) -> None:
    with server.client() as client:
        script = client.get("/page/app.js").text
    tasks = {"v1/inpaint", "v1/translate", "v1/generate"}
    assert set(re.findall(r'["`](/?v1/\w+)', script)) == {"v1/models", "v1/results", *tasks}
    assert set(re.findall(r'"(/?readyz)"', script)) == {"readyz"}
    assert re.findall(r"https?://(?!www\.w3\.org)", script) == []
    assert not re.search(r"\.(inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\(|new Function", script)


def test_all_of_it_is_at_most_40_kilobytes_compressed(server: Running) -> None:
    with server.client(headers={"Accept-Encoding": "gzip"}) as client:
        sizes = {path: int(client.get(path).headers["content-length"]) for path in PAGE_PATHS}
    assert sum(sizes.values()) <= 40_000, sizes


def test_a_file_that_has_not_changed_is_not_sent_again(server: Running) -> None:
    for encoding in ("gzip", "identity"):
        with server.client(headers={"Accept-Encoding": encoding}) as client:
            reply = client.get("/page/app.js")
            assert reply.headers["cache-control"] == "no-cache"
            assert reply.headers["vary"] == "Accept-Encoding"
            again = client.get("/page/app.js", headers={"If-None-Match": reply.headers["etag"]})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", reply.headers["etag"])


def test_a_client_without_gzip_gets_the_same_file(server: Running) -> None:
    with server.client(headers={"Accept-Encoding": "gzip"}) as client:
        packed = client.get("/page/app.js")
    with server.client(headers={"Accept-Encoding": "gzip;q=0"}) as client:
        plain = client.get("/page/app.js")
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert plain.content == packed.content
    assert gzip.compress(plain.content, 9, mtime=0)
    assert packed.headers["etag"] != plain.headers["etag"]


def test_other_methods_are_refused(server: Running) -> None:
    with server.client() as client:
        reply = client.post("/")
    assert reply.status_code == 405
    assert reply.headers["allow"] == "GET, HEAD"


def test_a_server_without_the_page_answers_404_and_the_api_as_before(serve: Serve) -> None:
    with serve(page=False).client() as client:
        assert [client.get(path).status_code for path in PAGE_PATHS] == [404] * len(PAGE_PATHS)
        assert client.get("/v1/models").status_code == 200


def test_the_page_is_not_in_the_document_of_the_api(server: Running) -> None:
    with server.client() as client:
        assert not set(client.get("/openapi.json").json()["paths"]) & set(PAGE_PATHS)
