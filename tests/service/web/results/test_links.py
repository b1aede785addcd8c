"""Links to results over HTTP: they open without a key until they expire."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from structlog.typing import EventDict

from service.auth.keys import key_id_of
from service.auth.links import LINK_S, SECRETS_FILE, Links, read_secrets
from tests.fakes.captured_logs import capture_logs
from tests.serving.key_files import add_key
from tests.serving.local_server import Running, Serve
from tests.serving.waiting import wait_until

Files = dict[str, tuple[str, bytes, str]]
PUBLIC_URL = "https://images.example/shop"


@pytest.fixture
def key(tmp_path: Path) -> str:
    return add_key(tmp_path / "keys.json", scopes=["inference", "results:read", "results:delete"])


@pytest.fixture
def running(serve: Serve, tmp_path: Path, key: str) -> Running:
    assert key
    return serve(keys_file=str(tmp_path / "keys.json"), public_url=PUBLIC_URL)


@pytest.fixture
def client(running: Running) -> Iterator[httpx.Client]:
    """A client without a key that sends the Host that a proxy would pass on."""
    with running.client(headers={"Host": "images.example"}) as client:
        yield client


@pytest.fixture
def filled(client: httpx.Client, files: Files, key: str) -> httpx.Response:
    reply = client.post("/v1/inpaint", files=files, headers={"X-API-Key": key})
    assert reply.status_code == 200, reply.text
    return reply


def result_of(filled: httpx.Response) -> str:
    return filled.headers["Location"].rpartition("/")[2]


def link_to(result_id: str, folder: Path, *, age_s: float = 0.0) -> str:
    """Return path and query of a link as the server would have made it some time ago."""
    keys = read_secrets(folder / "results" / SECRETS_FILE)
    return Links(PUBLIC_URL, keys, lambda: time.time() - age_s).url_of(result_id).removeprefix(PUBLIC_URL)


def test_a_link_opens_the_picture_without_a_key_and_nothing_else(
    client: httpx.Client, filled: httpx.Response, tmp_path: Path
) -> None:
    link = link_to(result_of(filled), tmp_path)
    reply = client.get(link, headers={"Accept": "application/json"})
    assert (reply.status_code, reply.content) == (200, filled.content)
    assert reply.headers["Content-Type"] == "image/png"
    assert reply.headers["Cache-Control"] == "private, no-cache"
    assert reply.headers["Referrer-Policy"] == "no-referrer"
    query = link.partition("?")[2]
    for path in ("", "/thumbnail"):
        assert client.get(f"{filled.headers['Location']}{path}?{query}").status_code == 401
    assert client.get("/v1/results").status_code == 401
    assert client.delete(f"{filled.headers['Location']}?{query}").status_code == 401


def test_a_link_answers_head_ranges_and_conditional_requests(
    client: httpx.Client, filled: httpx.Response, tmp_path: Path
) -> None:
    link = link_to(result_of(filled), tmp_path)
    head = client.head(link)
    assert (head.status_code, head.headers["Content-Length"]) == (200, str(len(filled.content)))
    assert (head.content, head.headers["Accept-Ranges"]) == (b"", "bytes")
    part = client.get(link, headers={"Range": "bytes=8-15", "If-Range": head.headers["ETag"]})
    assert (part.status_code, part.content) == (206, filled.content[8:16])
    known = client.get(link, headers={"If-None-Match": head.headers["ETag"]})
    assert (known.status_code, known.content) == (304, b"")
    outside = client.get(link, headers={"Range": f"bytes={len(filled.content)}-"})
    assert (outside.status_code, outside.json()["code"]) == (416, "range_not_satisfiable")


def test_an_expired_or_changed_link_is_403_and_says_which(
    client: httpx.Client, filled: httpx.Response, tmp_path: Path
) -> None:
    result_id = result_of(filled)
    for link, code in (
        (link_to(result_id, tmp_path, age_s=LINK_S + 1), "link_expired"),
        (link_to("0" * 32, tmp_path).replace("0" * 32, result_id), "link_invalid"),
        (f"/v1/results/{result_id}/shared", "link_invalid"),
    ):
        refused = client.get(link)
        assert (refused.status_code, refused.json()["code"]) == (403, code)
        assert client.head(link).status_code == 403
        assert client.get(link, headers={"If-None-Match": "*"}).status_code == 403


def test_a_link_whose_expiry_is_given_twice_is_refused(
    client: httpx.Client, filled: httpx.Response, tmp_path: Path
) -> None:
    link = link_to(result_of(filled), tmp_path)
    refused = client.get(f"{link}&expires={link.partition('expires=')[2].partition('&')[0]}")
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_option")


def test_behind_a_link_a_deleted_result_is_410_and_one_that_never_was_404(
    client: httpx.Client, filled: httpx.Response, key: str, tmp_path: Path
) -> None:
    link, tag = link_to(result_of(filled), tmp_path), {"If-None-Match": f'"{result_of(filled)}"'}
    assert client.get(link, headers=tag).status_code == 304
    assert client.delete(filled.headers["Location"], headers={"X-API-Key": key}).status_code == 204
    for headers in ({}, tag):
        gone = client.get(link, headers=headers)
        assert (gone.status_code, gone.json()["code"]) == (410, "result_deleted")
    assert client.get(link_to("0" * 32, tmp_path)).status_code == 404


def lines_of_shared(lines: list[EventDict]) -> list[EventDict]:
    """Return the log lines of requests by link; that of the fill, which names its key, may come late."""
    return [line for line in lines if line["event"] == "request" and line["path"].endswith("/shared")]


def test_the_signature_is_in_no_line_of_the_log(
    client: httpx.Client, filled: httpx.Response, tmp_path: Path, key: str
) -> None:
    link = link_to(result_of(filled), tmp_path)
    with capture_logs() as lines:
        for opened in (link, link_to(result_of(filled), tmp_path, age_s=LINK_S + 1)):
            client.get(opened)
        wait_until(lambda: len(lines_of_shared(lines)) == 2)
    assert link.partition("signature=")[2] not in str(lines)
    assert "signature" not in str(lines)
    assert str(key_id_of(key)) not in str(lines_of_shared(lines))


def test_the_name_of_the_public_url_is_the_servers_own(client: httpx.Client, files: Files, key: str) -> None:
    page = {"Origin": "https://images.example", "X-API-Key": key}
    assert client.post("/v1/inpaint", files=files, headers=page).status_code == 200
    assert client.get("/v1/models", headers={"X-API-Key": key, "Host": "evil.example"}).status_code == 421


def test_a_server_without_a_public_url_has_no_such_route(serve: Serve) -> None:
    with serve().client() as client:
        assert client.get(f"/v1/results/{'0' * 32}/shared?expires=1&signature=x").status_code == 404
        assert "/v1/results/{result_id}/shared" not in client.get("/openapi.json").json()["paths"]
