"""Waiting: for the page's script; for a fill, with what is sent, a busy or restarted server, limits, empty answers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import Serve, Tab
from tests.browser.desk import PICTURES, encoded, noise
from tests.browser.test_gallery import REFUSED, new_key
from tests.serving.waiting import wait_until

LINE = ((100, 150), (140, 150))
SCRIPT = "**/page/app.js"
Fault = Callable[[Route], None]


def test_a_fill_is_cancelled_and_its_mask_stays(tab: Tab, serve: Serve) -> None:
    desk = tab(f"{serve(fake_batch_ms=2000).url}/").open(PICTURES / "dress.jpg").collect()
    desk.drag(LINE)
    desk.page.click("#fill")
    desk.page.click("#cancel")
    desk.says("Cancelled")
    assert desk.page.locator("#fill").is_enabled()
    assert desk.mask().any()


def test_a_busy_server_is_waited_for_as_long_as_it_says(tab: Tab, serve: Serve) -> None:
    server = serve(fake_batch_ms=2000, max_queue_size=1)
    desk = tab(f"{server.url}/", expected=REFUSED).open(PICTURES / "dress.jpg").collect()
    desk.drag(LINE)
    with httpx.Client(base_url=server.url, timeout=60) as client:
        files = {
            name: (PICTURES / file).read_bytes() for name, file in (("image", "dress.jpg"), ("mask", "dress_mask.png"))
        }
        accepted = client.post("/v1/inpaint", files=files, headers={"Prefer": "respond-async"})
        assert accepted.status_code == 202
        wait_until(lambda: client.get(accepted.headers["Location"]).json()["status"] == "running")
        with desk.page.expect_response("**/v1/inpaint") as refused:
            desk.page.click("#fill")
        assert refused.value.status == 503
        expect(desk.page.locator("#busy-text")).to_have_text(
            re.compile(r"The server is busy: again in \d+ s"), timeout=30_000
        )
    desk.filled()


@pytest.mark.parametrize("at_once", ["0", "-5"])
def test_a_server_that_says_to_come_back_at_once_is_not_asked_without_end(tab: Tab, url: str, at_once: str) -> None:
    desk = tab(url, expected=REFUSED).open(PICTURES / "dress.jpg").collect()
    asked: list[Route] = []

    def answer(route: Route) -> None:
        asked.append(route)
        route.fulfill(status=503, headers={"Retry-After": at_once}, content_type="text/html", body="<h1>Busy</h1>")

    desk.page.route("**/v1/inpaint", answer)
    desk.drag(LINE)
    desk.page.click("#fill")
    expect(desk.page.locator("#busy-text")).to_have_text(re.compile(r"^The server is busy: again in [23] s$"))
    assert len(asked) <= 3


def test_a_slow_network_shows_how_much_is_sent_and_then_that_it_fills(tab: Tab, serve: Serve) -> None:
    desk = tab(f"{serve(fake_batch_ms=1500).url}/").open(encoded(noise(1000, 800), "noise.png")).collect()
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 800_000}
    desk.cdp.send("Network.emulateNetworkConditions", slow)
    desk.drag(LINE)
    desk.page.click("#fill")
    text = desk.page.locator("#busy-text")
    expect(text).to_have_text(re.compile(r"^Filling: 0\.\d of 2\.4 MB sent$"))
    expect(text).to_have_text(re.compile(r"^Filling: 1\.\d of 2\.4 MB sent$"))
    expect(text).to_have_text(re.compile(r"^Filling… \d+ s$"), timeout=20_000)
    desk.filled()


def test_a_fill_is_cancelled_while_it_is_sent(tab: Tab, serve: Serve) -> None:
    desk = tab(f"{serve().url}/").open(encoded(noise(1000, 800), "noise.png")).collect()
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 200_000}
    desk.cdp.send("Network.emulateNetworkConditions", slow)
    desk.drag(LINE)
    with desk.page.expect_event("requestfailed") as hung_up:
        desk.page.click("#fill")
        expect(desk.page.locator("#busy-text")).to_contain_text("MB sent")
        desk.page.click("#cancel")
    assert hung_up.value.failure == "net::ERR_ABORTED"
    desk.says("Cancelled")
    expect(desk.page.locator("#busy")).to_be_hidden()
    assert desk.page.locator("#fill").is_enabled()


def test_a_call_that_the_browser_stops_is_made_again(tab: Tab, serve: Serve) -> None:
    desk = tab(f"{serve(fake_batch_ms=1000).url}/").open(PICTURES / "dress.jpg").collect()
    desk.drag(LINE)
    with desk.page.expect_event("requestfailed"):
        desk.page.click("#fill")
        expect(desk.page.locator("#busy-text")).to_have_text("Filling… 0 s")
        desk.page.evaluate("window.stop()")
    expect(desk.page.locator("#busy-text")).to_contain_text("cannot be reached: again in")
    desk.filled()


def test_a_proxy_that_takes_no_file_so_large_is_understood(tab: Tab, serve: Serve) -> None:
    desk = tab(f"{serve().url}/", expected=REFUSED).open(PICTURES / "dress.jpg").collect()

    def too_large(route: Route) -> None:
        route.fulfill(status=413, content_type="text/html", body="<h1>Request Entity Too Large</h1>")

    desk.page.route("**/v1/inpaint", too_large)
    desk.drag(LINE)
    desk.page.click("#fill")
    desk.says("The file is too large for this server.")
    assert desk.page.locator("#fill").is_enabled()


def test_a_person_who_sent_too_much_is_told_and_the_fill_is_tried_again(tab: Tab, serve: Serve, tmp_path: Path) -> None:
    key = new_key(tmp_path, rate_per_s=0.25, burst=8)
    server = serve(keys_file=tmp_path / "keys.json")
    desk = tab(f"{server.url}/", expected=REFUSED, key=key).open(PICTURES / "dress.jpg").collect()
    desk.drag(LINE)
    headers = {"Authorization": f"Bearer {key}"}
    wait_until(lambda: httpx.get(f"{server.url}/v1/models", headers=headers).status_code == 429)
    desk.page.click("#fill")
    expect(desk.page.locator("#busy-text")).to_have_text(re.compile(r"^Too many requests were sent: again in \d s$"))
    desk.filled()


def test_a_deadline_that_cannot_be_met_is_told_and_the_mask_stays(tab: Tab, serve: Serve) -> None:
    server = serve(fake_batch_ms=2000, request_timeout_s=0.5)
    desk = tab(f"{server.url}/", expected=REFUSED).open(PICTURES / "dress.jpg").collect()
    desk.drag(LINE)
    with desk.page.expect_response("**/v1/inpaint") as late:
        desk.page.click("#fill")
    assert late.value.status == 504
    expect(desk.page.locator("#status.wrong")).to_be_visible(timeout=30_000)
    assert desk.page.locator("#fill").is_enabled()


def test_a_server_that_is_restarted_is_waited_for(tab: Tab, serve: Serve) -> None:
    server = serve(fake_batch_ms=100)
    desk = tab(f"{server.url}/", expected=f"ERR_|{REFUSED}").open(PICTURES / "dress.jpg").collect()
    desk.drag(LINE)
    port = int(server.url.rpartition(":")[2])
    server.kill()
    desk.page.click("#fill")
    expect(desk.page.locator("#busy-text")).to_contain_text("cannot be reached: again in", timeout=30_000)
    serve(fake_batch_ms=100, port=port)
    desk.filled()


def test_a_server_that_is_restarted_behind_a_proxy_is_waited_for(tab: Tab, url: str) -> None:
    desk = tab(url, expected=REFUSED).open(PICTURES / "dress.jpg").collect()

    def away(route: Route) -> None:
        route.fulfill(status=502, content_type="text/html", body="<h1>Bad Gateway</h1>")

    desk.page.route("**/v1/inpaint", away, times=1)
    desk.drag(LINE)
    desk.page.click("#fill")
    desk.filled()


@pytest.mark.parametrize(
    "empty",
    [{"status": 204}, *({"status": 200, "content_type": "image/png", "body": body} for body in ("", "\x89PNG"))],
    ids=["204", "no body", "cut off"],
)
def test_a_success_without_a_picture_is_told_and_not_asked_for_again(tab: Tab, url: str, empty: Any) -> None:
    desk = tab(url).open(PICTURES / "dress.jpg").collect()
    asked: list[Route] = []

    def answer(route: Route) -> None:
        asked.append(route)
        route.fulfill(**empty)

    desk.page.route("**/v1/inpaint", answer)
    desk.drag(LINE)
    desk.page.click("#fill")
    desk.says("The answer is empty or not from this server.")
    expect(desk.page.locator("#busy")).to_be_hidden()
    assert desk.page.locator("#fill").is_enabled()
    assert len(asked) == 1


@pytest.mark.parametrize(
    "other", [{"status": 204}, {"status": 200, "content_type": "text/html", "body": "<h1>Sign in</h1>"}]
)
def test_models_that_cannot_be_read_are_told_and_read_again_when_a_person_fills(
    tab: Tab, serve: Serve, other: Any
) -> None:
    asked: list[Route] = []

    def answer(route: Route) -> None:
        asked.append(route)
        route.fulfill(**other)

    desk = tab(f"{serve().url}/")
    desk.page.route("**/v1/models", answer)
    desk.page.reload()
    desk.says("The answer is empty or not from this server.")
    expect(desk.page.locator("#status")).to_be_empty(timeout=30_000)  # not said again
    assert len(asked) == 1
    desk.page.unroute("**/v1/models")
    desk.open(PICTURES / "dress.jpg")
    desk.drag(LINE)
    desk.filled()


def cut(route: Route) -> None:
    """The network is gone."""
    route.abort("connectionreset")


def bad_gateway(route: Route) -> None:
    """A proxy answers in the server's place."""
    route.fulfill(status=502, content_type="text/html", body="<h1>Bad Gateway</h1>")


def another_page(route: Route) -> None:
    """A filter answers with a page of its own, as a success."""
    route.fulfill(status=200, content_type="text/html", body="<h1>Blocked</h1>")


def not_understood(route: Route) -> None:
    """The browser is older than the script's language."""
    route.fulfill(status=200, content_type="text/javascript", body="let picture = ;")


@pytest.mark.parametrize("fault", [cut, bad_gateway, another_page, not_understood])
def test_a_page_whose_script_does_not_start_says_so(browser: Browser, url: str, fault: Fault) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.route(SCRIPT, fault)
        page.goto(url)
        expect(page.locator("#open")).to_be_disabled()
        expect(page.locator("#status")).to_be_hidden()  # a script that is slow to come is not missing yet
        let_ten_seconds_pass(page)
        expect(page.locator("#status")).to_be_visible()
        expect(page.locator("#status")).to_contain_text("Reload the page.")


def test_a_script_that_comes_late_takes_the_words_back(browser: Browser, url: str) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        held: list[Route] = []

        def hold(route: Route) -> None:
            held.append(route)

        page.route(SCRIPT, hold)
        page.goto(url, wait_until="commit")
        page.wait_for_selector("#status", state="attached")
        let_ten_seconds_pass(page)
        expect(page.locator("#status")).to_be_visible()
        held[0].continue_()
        expect(page.locator("#open")).to_be_enabled(timeout=60_000)
        expect(page.locator("#status")).to_be_empty()


def let_ten_seconds_pass(page: Page) -> None:
    """Bring what the style sheet delays to its end."""
    page.evaluate("document.getAnimations().forEach(animation => (animation.currentTime = 10_000))")
