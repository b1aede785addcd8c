"""Foreign APIs refuse what /v1 refuses (keys, rates, drain, deadlines, sizes), each in its own error format."""

from __future__ import annotations

import base64
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.routing import APIRoute

from engines.fake import FakeEngine, Hang
from retouch.client.png import encode_png
from service.compat.assembly import foreign_apis
from service.core.settings import FOREIGN_APIS
from service.web.middleware.methods import heads_of
from tests.service.compat.foreign_requests import GOOD, IMG2IMG, OF_JSON, ForeignRequest
from tests.serving.bad_request import BadRequest
from tests.serving.key_files import add_key
from tests.serving.waiting import wait_until

Serve = Callable[..., Any]
ALL = ",".join(FOREIGN_APIS)
APIS = foreign_apis(FOREIGN_APIS)
each = pytest.mark.parametrize("good", GOOD, ids=lambda good: good.api)


def send(client: httpx.Client, good: ForeignRequest, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(good.path, content=good.body, headers={**good.headers, **named})


def refused(reply: httpx.Response, good: ForeignRequest, status: int) -> httpx.Response:
    assert reply.status_code == status, reply.text
    assert reply.headers["Content-Type"] == "application/json"
    assert good.message(reply.json())
    assert reply.headers["X-Request-ID"]
    return reply


def endpoints() -> Iterator[tuple[str, str, str]]:
    """API, method and path of every foreign route, with path parameters filled in."""
    for api in APIS:
        for router in (api.router, heads_of(api.router)):
            for route in router.routes:
                assert isinstance(route, APIRoute)
                path = re.sub(r"\{[a-z]+\}", "1", route.path)
                yield from ((api.name, method, path) for method in route.methods)


PUBLIC = {"/v2/health/live", "/v2/health/ready"}


@pytest.fixture(scope="module")
def matrix() -> list[tuple[str, str, str]]:
    return sorted(endpoints())


def test_every_route_needs_a_key_with_the_scope_for_inference(
    serve: Serve, tmp_path: Path, matrix: list[tuple[str, str, str]]
) -> None:
    keys = tmp_path / "keys.json"
    right, short = add_key(keys), add_key(keys, scopes=["metrics"])
    assert len(matrix) >= 30
    with serve(apis=ALL, keys_file=str(keys)).client() as client:
        for name, method, path in matrix:
            if path in PUBLIC:
                assert client.request(method, path).status_code == 200
                continue
            none = client.request(method, path)
            scheme = "Basic" if name == "automatic1111" else "Bearer"
            assert (none.status_code, none.headers["WWW-Authenticate"]) == (401, f'{scheme} realm="retouch"'), path
            assert client.request(method, path, headers={"X-API-Key": short}).status_code == 403, path
            answered = client.request(method, path, headers={"Authorization": f"Bearer {right}"})
            assert answered.status_code not in (401, 403, 429), path
            assert answered.status_code < 500, path


def test_a_basic_password_is_a_key_for_automatic1111_alone(serve: Serve, tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys.json")
    with serve(apis=ALL, keys_file=str(tmp_path / "keys.json")).client() as client:
        basic = "Basic " + base64.b64encode(f"anybody:{key}".encode()).decode()
        for good in GOOD:
            expected = 200 if good is IMG2IMG else 401
            assert send(client, good, Authorization=basic).status_code == expected, good.api
        for wrong in ("Basic", "Basic !", "Basic " + base64.b64encode(b"nobody").decode(), basic + "x", "Basic ü"):
            answered = client.post(IMG2IMG.path, headers={b"Authorization": wrong.encode("latin-1")})
            assert answered.status_code == 401, wrong
        for good in GOOD:
            told = good.message(send(client, good).json()).endswith(", or the key as password of HTTP Basic")
            assert told == (good is IMG2IMG), good.api


@each
def test_rate_and_quota_are_those_of_v1_and_say_when_to_return(
    serve: Serve, tmp_path: Path, good: ForeignRequest
) -> None:
    keys = tmp_path / "keys.json"
    slow, little = add_key(keys, rate_per_s=0.001, burst=1), add_key(keys, requests_per_day=1)
    with serve(apis=ALL, keys_file=str(keys)).client() as client:
        assert send(client, good, X_API_Key=slow).status_code == 200
        late = refused(send(client, good, X_API_Key=slow), good, 429)
        assert 900 < int(late.headers["Retry-After"]) <= 1000
        for path in ("/v2/repository/index", "/api/v1/model", "/sdapi/v1/options"):  # routes that ask for no pictures
            client.post(path, headers={"X-API-Key": little, "Content-Type": "application/json"}, content=b"{}")
        assert send(client, good, X_API_Key=little).status_code == 200
        refused(send(client, good, X_API_Key=little), good, 429)


@each
def test_what_is_off_is_404_and_not_in_the_document(serve: Serve, good: ForeignRequest) -> None:
    others = ",".join(name for name in FOREIGN_APIS if name != good.api)
    prefix = next(api.prefix for api in APIS if api.name == good.api)
    with serve(apis=others).client() as client:
        off = send(client, good)
        assert (off.status_code, off.json()["code"]) == (404, "not_found")
        paths = client.get("/openapi.json").json()["paths"]
        assert [path for path in paths if path.startswith(prefix)] == []
        for other in GOOD:
            assert other is good or send(client, other).status_code == 200


@pytest.mark.parametrize("good", OF_JSON, ids=lambda good: good.api)
def test_a_text_that_was_cut_within_an_emoji_is_refused_by_name(client: httpx.Client, good: ForeignRequest) -> None:
    cut = good.body[:-1] + rb', "prompt": "a \ud83d"}'
    answered = refused(client.post(good.path, content=cut, headers=good.headers), good, 400)
    assert good.message(answered.json()).startswith("`prompt` has half of a surrogate pair")


@each
def test_deadlines_are_kept_and_a_late_answer_is_504(client: httpx.Client, good: ForeignRequest) -> None:
    refused(send(client, good, X_Request_Timeout_Ms="0.001"), good, 504)
    refused(send(client, good, X_Request_Timeout_Ms="0"), good, 422)
    refused(send(client, good, X_Priority="11"), good, 422)


@each
def test_a_draining_server_refuses_and_says_when_to_return(serve: Serve, good: ForeignRequest) -> None:
    running = serve(apis=ALL)
    admission = running.service.admission
    admission.in_flight += 1  # without a request in flight the drain would end at once
    admission.draining.set()
    with running.client() as client:
        assert int(refused(send(client, good), good, 503).headers["Retry-After"]) >= 1
    admission.in_flight -= 1


@each
def test_a_client_that_disconnects_frees_its_slot_and_is_counted(serve: Serve, good: ForeignRequest) -> None:
    go, warm = Event(), Event()
    running = serve(
        fake=lambda manifest: FakeEngine(manifest, fault=lambda _: Hang(go) if warm.is_set() else None), apis=ALL
    )
    warm.set()
    host, port = running.url.removeprefix("http://").split(":")
    try:
        with socket.create_connection((host, int(port))) as connection:
            request = BadRequest("left", 0, None, path=good.path, headers=good.headers, body=good.body)
            connection.sendall(request.raw())
            wait_until(lambda: running.service.admission.in_flight == 1)
        wait_until(lambda: running.service.admission.in_flight == 0)
        assert running.service.admission.bodies_bytes == 0
    finally:
        go.set()


@each
def test_methods_and_paths_that_are_not_there_are_refused_in_its_form(
    client: httpx.Client, good: ForeignRequest
) -> None:
    prefix = next(api.prefix for api in APIS if api.name == good.api)
    assert refused(client.put(good.path), good, 405).headers["Allow"] == "POST"
    refused(client.get(f"{prefix}/nothing/of/the/kind"), good, 404)


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("/api/v1/inpaint", " before sending it"),
        ("/sdapi/v1/img2img", ", or send inpaint_full_res=false and resize_mode=0"),
    ],
)
def test_a_mask_of_another_size_is_refused_without_advice_that_the_api_does_not_take(
    client: httpx.Client, in_base64: Callable[[bytes], str], photo: bytes, path: str, advice: str
) -> None:
    image, mask = in_base64(photo), in_base64(encode_png(np.full((64, 65), 255, np.uint8)))
    refused = client.post(path, json={"image": image, "init_images": [image], "mask": mask})
    assert (refused.status_code, refused.json()["code"]) == (400, "sizes_differ")
    said = f"the image is 64×64 and the mask 65×64; scale the mask to the size of the image{advice}"
    assert refused.json()["errors"] == refused.json()["detail"] == said


@each
def test_a_body_over_the_limit_is_413(serve: Serve, good: ForeignRequest) -> None:
    def endless() -> Iterator[bytes]:
        yield good.body[:200]
        for _ in range(64):
            yield bytes(65_536)

    with serve(apis=ALL, max_body_mb=0.25).client() as client:
        refused(client.post(good.path, headers=good.headers, content=bytes(300_000)), good, 413)
        refused(client.post(good.path, headers=good.headers, content=endless()), good, 413)


def test_a_body_that_never_ends_is_given_up_by_every_call(serve: Serve, matrix: list[tuple[str, str, str]]) -> None:
    host, port = serve(apis=ALL, body_timeout_s=0.2).url.removeprefix("http://").split(":")
    answers = {}
    for path in {path for _, method, path in matrix if method == "POST"}:
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            head = f"Host: {host}\r\nContent-Type: application/json\r\nContent-Length: 100"
            connection.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n\r\n{{".encode())
            answers[path] = connection.recv(12)
    assert set(answers.values()) == {b"HTTP/1.1 408"}, answers


@pytest.mark.parametrize("good", OF_JSON, ids=lambda good: good.api)
def test_the_memory_for_bodies_is_asked_for_before_base64_is_decoded(serve: Serve, good: ForeignRequest) -> None:
    running = serve(apis=ALL, max_memory_mb=0.125)
    admission = running.service.admission
    admission.bodies_bytes = int(admission.max_bodies_bytes) - len(good.body) - 100  # as if other requests held it
    with running.client() as client:
        full = refused(send(client, good), good, 503)
        assert "request bodies already use" in good.message(full.json())
        assert int(full.headers["Retry-After"]) >= 1
        admission.bodies_bytes -= len(good.body)
        assert send(client, good).status_code == 200
