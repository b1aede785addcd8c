"""The hosts and origins that requests may name; tests/clients/test_hostile_pages.py does the same in a browser."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from service.core.errors import Forbidden, Misdirected
from service.core.settings import Settings
from service.web.middleware.foreign_pages import KnownSites
from tests.service.web.replies import Files, Serve, check_problem
from tests.serving.local_server import Running

LOCAL = KnownSites.of(Settings())
PUBLIC = KnownSites.of(Settings(host="0.0.0.0", allow_anonymous=True, public_host="Images.example, *.shop.example"))


@pytest.mark.parametrize(
    "host",
    [
        *(
            "localhost",
            "LOCALHOST:8000",
            "localhost.",
            "app.localhost:8000",
            "127.0.0.1:8000",
            "127.9.9.9",
            "[::1]:8000",
        ),
        *("10.0.0.7:8000", "[2001:db8::1]", "192.0.2.1", "", None),
    ],
)
def test_this_machine_and_addresses_are_always_known(host: str | None) -> None:
    LOCAL.check_host(host)
    PUBLIC.check_host(host)


@pytest.mark.parametrize(
    "host",
    [
        *(
            "evil.example",
            "evil.example:8000",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.1",
            "2130706433",
        ),
        *(
            "0x7f000001",
            "evil.example:8000:8000",
            "[::1",
            "localhost@evil.example",
            "evil.example@localhost",
            "localhost/evil",
            "[evil.example]",
            "notlocalhost",
            "%6cocalhost",
        ),
        *("images.example.evil", "shop.example", "xshop.example"),
    ],
)
def test_every_other_name_is_refused_with_what_to_do(host: str) -> None:
    for sites in (LOCAL, PUBLIC):
        with pytest.raises(Misdirected, match="--public-host"):
            sites.check_host(host)


@pytest.mark.parametrize(
    "host", ["images.example", "IMAGES.example:443", "images.example.", "a.shop.example", "a.b.shop.example"]
)
def test_public_names_are_known(host: str) -> None:
    PUBLIC.check_host(host)


def test_the_listening_host_is_known_and_a_star_allows_all() -> None:
    KnownSites.of(Settings(host="studio.lan", allow_anonymous=True)).check_host("studio.lan:8000")
    KnownSites.of(Settings(public_host="*")).check_host("evil.example")


def test_the_public_url_names_the_server_and_its_own_origin_with_the_port() -> None:
    sites = KnownSites.of(Settings(host="0.0.0.0", allow_anonymous=True, public_url="https://Images.example:8443/shop"))
    sites.check_host("images.example")
    sites.check_host("images.example:8443")
    for host in ("images.example", "10.0.0.7:8000"):  # a proxy drops the port, or sends its own name
        sites.check_origin("POST", Headers({"origin": "https://images.example:8443", "host": host}))
    with pytest.raises(Misdirected):
        sites.check_host("images.example.evil")
    with pytest.raises(Forbidden):
        sites.check_origin("POST", Headers({"origin": "https://images.example:9", "host": "10.0.0.7:8000"}))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "same-origin"},
        {"origin": "http://localhost:8000", "sec-fetch-site": "same-origin"},
        {"origin": "http://localhost:8000"},
        {"origin": "https://localhost:8000"},
        {"origin": "https://images.example", "host": "10.0.0.7:8000", "sec-fetch-site": "same-origin"},
        {"origin": "https://images.example", "host": "10.0.0.7:8000"},
    ],
)
def test_programs_and_this_servers_own_pages_may_send_anything(headers: dict[str, str]) -> None:
    PUBLIC.check_origin("POST", Headers({"host": "localhost:8000", **headers}))


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://localhost:3000", "sec-fetch-site": "same-site"},
        {"origin": "http://localhost"},
        {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
        {"origin": "http://localhost:8000", "sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "cross-site"},
        {"origin": "https://images.example.evil"},
        {"origin": "https://a.shop.example", "sec-fetch-site": "same-site"},
    ],
)
@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT", "PATCH", "PROPFIND"])
def test_foreign_pages_may_send_nothing_that_changes_something(headers: dict[str, str], method: str) -> None:
    with pytest.raises(Forbidden, match="--cors-origins") as refused:
        PUBLIC.check_origin(method, Headers({"host": "localhost:8000", **headers}))
    assert refused.value.code == "foreign_origin"
    for safe in ("GET", "HEAD", "OPTIONS"):
        PUBLIC.check_origin(safe, Headers({"host": "localhost:8000", **headers}))


@pytest.mark.parametrize("origins", ["https://app.example, https://b.example", "*"])
def test_pages_of_origins_that_are_named_may_send_everything(origins: str) -> None:
    sites = KnownSites.of(Settings(cors_origins=origins))
    headers = {"host": "localhost:8000", "origin": "https://app.example", "sec-fetch-site": "cross-site"}
    sites.check_origin("POST", Headers(headers))


def test_a_page_behind_the_address_alone_is_no_page_of_this_server() -> None:
    headers = {"host": "127.0.0.1:8000", "origin": "http://127.0.0.1"}
    with pytest.raises(Forbidden):
        LOCAL.check_origin("POST", Headers(headers))


def test_a_wrong_name_is_misdirected_before_anything_else_and_probes_are_answered(
    server: Running, files: Files
) -> None:
    wrong = {"Host": "evil.example"}
    with server.client() as client:
        for method, path in (
            ("GET", "/v1/results"),
            ("GET", "/nowhere"),
            ("GET", "/docs"),
            ("DELETE", "/v1/results/x"),
        ):
            check_problem(client.request(method, path, headers=wrong), 421, "unknown_host")
        check_problem(client.post("/v1/inpaint", files=files, headers=wrong), 421, "unknown_host")
        assert client.get("/livez", headers=wrong).status_code == 200
        assert client.get("/readyz", headers=wrong).status_code == 200
        assert 'retouch_rejected_total{reason="unknown_host"} 5.0' in client.get("/metrics").text


def test_probes_of_a_foreign_api_are_answered_under_any_name(serve: Serve) -> None:
    wrong = {"Host": "retouch-kserve"}
    with serve(apis="open-inference").client() as client:
        assert client.get("/v2/health/ready", headers=wrong).status_code == 200
        assert client.get("/v2", headers=wrong).status_code == 421


def test_a_page_that_is_named_is_answered_and_another_refused(serve: Serve, files: Files) -> None:
    with serve(cors_origins="https://app.example").client() as client:
        page = {"Origin": "https://app.example", "Sec-Fetch-Site": "cross-site"}
        filled = client.post("/v1/inpaint", files=files, headers=page)
        assert (filled.status_code, filled.headers["access-control-allow-origin"]) == (200, "https://app.example")
        stranger = client.post("/v1/inpaint", files=files, headers={**page, "Origin": "https://evil.example"})
        check_problem(stranger, 403, "foreign_origin")
        assert "access-control-allow-origin" not in stranger.headers
