"""Every endpoint with every kind of key; the routes are enumerated, so that none is forgotten."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.routing import Route

from service.auth.exposure import check_exposure
from service.auth.keys import SCOPES, key_id_of, read_keys, with_key_revoked, write_keys
from service.core.settings import Settings, SettingsInvalid
from service.web.application import App
from service.web.middleware.authorisation import PUBLIC
from tests.fakes.captured_logs import capture_logs
from tests.serving.key_files import add_key
from tests.serving.waiting import wait_until

Serve = Callable[..., Any]
Files = dict[str, tuple[str, bytes, str]]


PUBLIC_URL = "https://images.example"
LINK = f"/v1/results/{'0' * 32}/shared"


def endpoints() -> list[tuple[str, str]]:
    """Return method and path of every route of the application, with path parameters filled in."""
    found, waiting = set(), [*App(Settings(public_url=PUBLIC_URL, keys_file="keys.json")).routes]
    while waiting:
        route = waiting.pop()
        if included := getattr(route, "original_router", None):  # FastAPI's record of an include_router
            waiting += included.routes
            continue
        assert isinstance(route, Route | APIRoute), f"{route} is not covered by this matrix; extend it"
        path = re.sub(r"\{[a-z_]+\}", "0" * 32, route.path)
        found |= {(method, path) for method in route.methods or ()}
    return sorted(found)


GUARDED = [(method, path) for method, path in endpoints() if path not in {*PUBLIC, LINK}]


def test_what_needs_no_key_is_listed_here_a_second_time() -> None:
    probes, documentation = {"/livez", "/readyz"}, {"/docs", "/docs/start.js", "/openapi.json"}
    assets = {"/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css"}
    page = {"/", "/page/app.js", "/page/page.css", "/page/icon.svg"}
    assert probes | documentation | assets | page == PUBLIC
    assert {path for _, path in endpoints()} >= PUBLIC
    assert {("GET", LINK), ("HEAD", LINK)} == {one for one in endpoints() if one[1] == LINK}
    assert ("POST", "/v1/inpaint") in GUARDED
    assert {("GET", "/v1/results"), ("DELETE", f"/v1/results/{'0' * 32}")} <= set(GUARDED)
    assert len(GUARDED) >= 12


def scopes_that_suffice(method: str, path: str) -> set[str]:
    """Return the scopes, each of which opens a route; stated here independently of the code."""
    if path == "/metrics":
        return {"metrics"}
    if path == "/v1/results":
        return {"results:read"}
    if path.startswith("/v1/results/"):
        return {"results:delete"} if method == "DELETE" else {"inference", "results:read"}
    return {"inference"}


class Keys:
    def __init__(self, path: Path) -> None:
        past = datetime(2026, 1, 1, tzinfo=timezone.utc)
        self.path = path
        self.inference = add_key(path)
        self.metrics = add_key(path, scopes=["metrics"])
        self.by_scope = {scope: add_key(path, scopes=[scope]) for scope in SCOPES}
        self.revoked = add_key(path, revoked_at=past, scopes=["inference", "metrics"])
        self.expired = add_key(path, expires_at=past, scopes=["inference", "metrics"])
        self.wrong = self.inference[:-4] + ("AAAA" if not self.inference.endswith("AAAA") else "BBBB")


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "keys.json")


@pytest.fixture
def client(serve: Serve, keys: Keys) -> Iterator[httpx.Client]:
    with serve(keys_file=str(keys.path), public_url=PUBLIC_URL).client() as client:
        yield client


def ask(client: httpx.Client, method: str, path: str, key: str | None, **options: Any) -> httpx.Response:
    return client.request(method, path, headers={} if key is None else {"X-API-Key": key}, **options)


def test_every_endpoint_asks_for_a_key_with_its_scope(client: httpx.Client, keys: Keys) -> None:
    for method, path in endpoints():
        where = f"{method} {path}"
        if path in PUBLIC:
            assert ask(client, method, path, None).status_code == 200, where
            assert ask(client, method, path, keys.wrong).status_code == 200, where
            continue
        if path == LINK:  # a key is neither required nor sufficient
            for key in (None, keys.wrong, *keys.by_scope.values()):
                refused = ask(client, method, path, key)
                assert refused.status_code == 403, where
                assert method == "HEAD" or refused.json()["code"] == "link_invalid", where
            continue
        for key, code in (
            (None, "no_key"),
            ("", "unknown_key"),
            (keys.wrong, "unknown_key"),
            (keys.revoked, "revoked_key"),
            (keys.expired, "expired_key"),
        ):
            refused = ask(client, method, path, key)
            assert refused.status_code == 401, where
            assert refused.headers["WWW-Authenticate"] == 'Bearer realm="retouch"', where
            assert method == "HEAD" or refused.json()["code"] == code, where
        for scope, key in keys.by_scope.items():
            allowed = ask(client, method, path, key).status_code not in (401, 403, 429)
            assert allowed == (scope in scopes_that_suffice(method, path)), f"{where} with {scope}"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(
            ("GET", path)
            for path in ("/page", "/page/", "/v1", "/v1/nothing", "/livez/", "/%2Flivez", "/docs/../metrics", "/docs/x")
        ),
        *(("GET", path) for path in ("/metrics/", "/%6detrics", "/LIVEZ", "/livez;/metrics")),
        *(("OPTIONS", path) for path in ("/v1/inpaint", "/metrics")),
        *(("PATCH", "/v1/models"), ("PROPFIND", "/v1/inpaint"), ("DELETE", LINK), ("POST", LINK)),
        *(("GET", path) for path in (f"{LINK}/", f"/{LINK}", LINK.replace("0", "g"), f"{LINK}%0a")),
    ],
)
def test_a_client_without_a_key_does_not_learn_which_paths_exist(client: httpx.Client, method: str, path: str) -> None:
    refused = client.request(method, path)
    assert (refused.status_code, refused.json()["code"]) == (401, "no_key")


def test_a_refused_body_is_not_read(client: httpx.Client, keys: Keys) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * 65536

    head = {"Content-Type": "multipart/form-data; boundary=b", "X-API-Key": keys.wrong}
    with suppress(httpx.TransportError):  # the connection may be cut while the body is still being sent
        assert client.post("/v1/inpaint", headers=head, content=endless()).status_code == 401


def test_a_key_does_the_main_job_and_the_log_names_its_owner(client: httpx.Client, keys: Keys, files: Files) -> None:
    with capture_logs() as lines:
        filled = client.post("/v1/inpaint", files=files, headers={"Authorization": f"Bearer {keys.inference}"})
        assert filled.status_code == 200
        owner = f"key:{key_id_of(keys.inference)}"
        wait_until(lambda: any(line.get("client") == owner for line in lines))  # written after the reply is sent
    assert keys.inference not in str(lines)


def test_a_key_that_a_client_puts_into_the_path_is_not_logged(client: httpx.Client, keys: Keys) -> None:
    with capture_logs() as lines:
        assert client.get(f"/v1/results/{keys.inference}").status_code == 401
        wait_until(lambda: any(line["event"] == "request" for line in lines))
    asked = [line["path"] for line in lines if line["event"] == "request"]  # the server may log that it is ready now
    assert asked == [f"/v1/results/rtk_{key_id_of(keys.inference)}_…"]


def test_over_the_rate_and_over_the_quota_are_429_with_a_computed_retry_after(
    serve: Serve, keys: Keys, files: Files
) -> None:
    slow = add_key(keys.path, rate_per_s=0.001, burst=1)
    little = add_key(keys.path, requests_per_day=1)
    with serve(keys_file=str(keys.path)).client() as client:
        assert ask(client, "GET", "/v1/models", slow).status_code == 200
        refused = ask(client, "POST", "/v1/inpaint", slow, files=files)
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert 900 < int(refused.headers["Retry-After"]) <= 1000
        assert refused.json()["retryable"]
        assert ask(client, "POST", "/v1/inpaint", little, files=files).status_code == 200
        refused = ask(client, "POST", "/v1/inpaint", little, files=files)
        assert (refused.status_code, refused.json()["code"]) == (429, "quota_exhausted")
        assert 0 < int(refused.headers["Retry-After"]) <= 86400
        assert ask(client, "GET", "/v1/models", little).status_code == 200
        series = ask(client, "GET", "/metrics", keys.metrics).text
        assert 'retouch_rejected_total{reason="quota_exhausted"} 1.0' in series


def test_a_key_that_is_revoked_while_the_server_runs_is_refused_and_a_new_one_is_taken(
    serve: Serve, keys: Keys
) -> None:
    def until(key: str, status: int) -> None:
        wait_until(lambda: ask(client, "GET", "/v1/models", key).status_code == status)

    with serve(keys_file=str(keys.path)).client() as client:
        until(keys.inference, 200)
        write_keys(
            keys.path,
            with_key_revoked(read_keys(keys.path), key_id_of(keys.inference) or "", datetime.now(timezone.utc)),
        )
        until(keys.inference, 401)
        until(add_key(keys.path), 200)


def test_without_a_key_file_everything_works_without_a_key(serve: Serve, files: Files) -> None:
    with serve().client() as client:
        assert client.post("/v1/inpaint", files=files).status_code == 200
        assert client.get("/metrics").status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "example.org"])
def test_a_public_address_without_keys_needs_an_explicit_setting(host: str) -> None:
    with pytest.raises(SettingsInvalid, match=rf"^host {re.escape(repr(host))} can be reached .* --allow-anonymous"):
        check_exposure(Settings(host=host))
    check_exposure(Settings(host=host, allow_anonymous=True))
    check_exposure(Settings(host=host, keys_file="keys.json"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_this_machine_alone_needs_no_keys(host: str) -> None:
    check_exposure(Settings(host=host))


def test_every_reply_tells_browsers_to_take_it_for_nothing_but_data(client: httpx.Client, keys: Keys) -> None:
    for reply in (client.get("/livez"), client.get("/v1/models"), ask(client, "GET", "/nowhere", keys.inference)):
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert reply.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert reply.headers["X-Frame-Options"] == "DENY"
        assert "server" not in reply.headers
        assert "access-control-allow-origin" not in reply.headers


def test_pages_of_other_origins_may_call_only_where_they_are_named(serve: Serve, keys: Keys) -> None:
    asking = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    with serve(keys_file=str(keys.path)).client() as client:
        assert "access-control-allow-origin" not in client.options("/v1/inpaint", headers=asking).headers
    with serve(keys_file=str(keys.path), cors_origins="https://app.example, https://b.example").client() as client:
        preflight = client.options("/v1/inpaint", headers=asking)
        assert (preflight.status_code, preflight.headers["access-control-allow-origin"]) == (200, "https://app.example")
        assert "access-control-allow-credentials" not in preflight.headers
        parameters = client.get("/openapi.json").json()["paths"]["/v1/inpaint"]["post"]["parameters"]
        documented = ", ".join(one["name"] for one in parameters if one["in"] == "header")
        assert "Idempotency-Key" in documented
        wanted = {**asking, "Access-Control-Request-Headers": documented}
        assert client.options("/v1/inpaint", headers=wanted).status_code == 200
        refused = client.post("/v1/inpaint", headers=asking)  # has passed the preflight, but has no key
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "https://app.example")
        stranger = client.options("/v1/inpaint", headers={**asking, "Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in stranger.headers
