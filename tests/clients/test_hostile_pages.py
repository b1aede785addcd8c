"""Hostile pages in a real browser: of another origin, and by DNS rebinding of a name to the server's address."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx
import pytest
from conftest import CHROMIUM, PICTURES, SWITCHES, origin_of
from playwright.sync_api import Browser, Page, sync_playwright

NAME = "rebound.example"
NO_HELP = "--disable-features=LocalNetworkAccessChecks,PrivateNetworkAccessSendPreflights"
"""Switches off newer browsers' checks of requests to this machine: the server must be safe without them."""
ASK = """async ([url, method, options]) => {
    try {
        const reply = await fetch(url, {method, ...options});
        return [reply.type, reply.status, await reply.text()];
    } catch (error) {
        return ["error", 0, String(error)];
    }
}"""
FILL = """async ([url, mode]) => {
    const form = new FormData();
    const canvas = new OffscreenCanvas(64, 64);
    canvas.getContext("2d").fillRect(0, 0, 64, 64);
    const image = await canvas.convertToBlob();
    canvas.getContext("2d").fillStyle = "white";
    canvas.getContext("2d").fillRect(10, 10, 20, 20);
    form.append("image", image, "a.png");
    form.append("mask", await canvas.convertToBlob(), "m.png");
    try {
        const reply = await fetch(url, {method: "POST", body: form, mode});
        return [reply.type, reply.status];
    } catch (error) {
        return ["error", 0];
    }
}"""
SUBMIT = """url => {
    const form = document.createElement("form");
    form.method = "post";
    form.enctype = "multipart/form-data";
    form.action = url;
    document.body.append(form);
    form.submit();
}"""


class _Blank(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><body>a prize</body>")

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Discard the server's log."""


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    """URL of another server on this machine, which browsers treat as the same site."""
    with origin_of(_Blank) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        rules = f"--host-resolver-rules=MAP {NAME} 127.0.0.1,MAP evil.example 127.0.0.1"
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=[*SWITCHES, rules, NO_HELP])
        yield found
        found.close()


@pytest.fixture(params=["same site", "cross site"])
def hostile(browser: Browser, elsewhere: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page of another origin: on another port of this machine, or under another name."""
    page = browser.new_page()
    page.goto(elsewhere if request.param == "same site" else elsewhere.replace("127.0.0.1", "evil.example"))
    yield page
    page.close()


@pytest.fixture
def result(url: str) -> str:
    """The address of a result made by a user at this machine."""
    files = {"image": (PICTURES / "dress.jpg").open("rb"), "mask": (PICTURES / "dress_mask.png").open("rb")}
    location: str = httpx.post(f"{url}/v1/inpaint", files=files, timeout=60).headers["location"]
    for file in files.values():
        file.close()
    return location


def made(url: str) -> list[str]:
    """Return the addresses of all results."""
    listed: dict[str, Any] = httpx.get(f"{url}/v1/results?limit=100").json()
    return [one["url"] for one in listed["results"]]


def test_a_page_of_another_origin_makes_no_pictures(hostile: Page, url: str, result: str) -> None:
    before = made(url)
    assert hostile.evaluate(FILL, [f"{url}/v1/inpaint", "no-cors"])[0] == "opaque"
    assert hostile.evaluate(FILL, [f"{url}/v1/inpaint", "cors"]) == ["error", 0]
    with hostile.expect_response(lambda reply: reply.url.endswith("/v1/generate")) as sent:
        hostile.evaluate(SUBMIT, f"{url}/v1/generate")
    assert sent.value.status == 403
    assert sent.value.json()["code"] == "foreign_origin"
    assert made(url) == before


def test_a_page_of_another_origin_reads_and_deletes_nothing(hostile: Page, url: str, result: str) -> None:
    for path in ("/v1/results", result, f"{result}/thumbnail", "/v1/models"):
        assert hostile.evaluate(ASK, [f"{url}{path}", "GET", {}])[:2] == ["error", 0]
        assert hostile.evaluate(ASK, [f"{url}{path}", "GET", {"mode": "no-cors"}]) == ["opaque", 0, ""]
    assert hostile.evaluate(ASK, [f"{url}{result}", "DELETE", {}])[:2] == ["error", 0]
    assert result in made(url)


def test_a_name_that_is_bound_to_the_servers_address_reads_makes_and_deletes_nothing(
    browser: Browser, url: str, result: str
) -> None:
    page, before = browser.new_page(), made(url)
    bound = url.replace("127.0.0.1", NAME)
    page.route(f"{bound}/prize", lambda route: route.fulfill(body="<body>a prize</body>", content_type="text/html"))
    page.goto(f"{bound}/prize")  # as the attacker's server answered before the name was rebound
    for path, method in (("/v1/results", "GET"), (result, "GET"), (result, "DELETE"), ("/docs", "GET")):
        kind, status, text = page.evaluate(ASK, [f"{bound}{path}", method, {}])
        assert (kind, status) == ("basic", 421), "the page may read this reply, so it must hold nothing"
        assert "unknown_host" in text
    assert page.evaluate(FILL, [f"{bound}/v1/inpaint", "cors"]) == ["basic", 421]
    assert made(url) == before
    page.close()


def test_the_servers_own_page_may_ask_for_everything(browser: Browser, url: str, result: str) -> None:
    page = browser.new_page()
    page.goto(f"{url.replace('127.0.0.1', 'localhost')}/docs")
    own = url.replace("127.0.0.1", "localhost")
    assert page.evaluate(FILL, [f"{own}/v1/inpaint", "cors"]) == ["basic", 200]
    assert page.evaluate(ASK, [f"{own}{result}", "DELETE", {}])[1] == 204
    assert result not in made(url)
    page.close()
