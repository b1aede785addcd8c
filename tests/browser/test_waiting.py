"""Waiting for the page's script and for fills: uploads, a busy or restarted server, limits, empty replies."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.conftest import OpenTab, Serve
from tests.browser.tab import PICTURES, encoded, noise
from tests.browser.test_gallery import REFUSED, new_key
from tests.serving.waiting import wait_until

LINE = ((100, 150), (140, 150))
SCRIPT = "**/page/app.js"
Fault = Callable[[Route], None]


def test_a_fill_is_cancelled_and_its_mask_stays(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve(fake_batch_ms=2000).url}/").open(PICTURES / "dress.jpg").collect()
    tab.drag(LINE)
    tab.page.click("#fill")
    tab.page.click("#cancel")
    tab.says("Cancelled")
    assert tab.page.locator("#fill").is_enabled()
    assert tab.mask().any()


def test_a_busy_server_is_waited_for_as_long_as_it_says(open_tab: OpenTab, serve: Serve) -> None:
    server = serve(fake_batch_ms=2000, max_queue_size=1)
    tab = open_tab(f"{server.url}/", expected=REFUSED).open(PICTURES / "dress.jpg").collect()
    tab.drag(LINE)
    with httpx.Client(base_url=server.url, timeout=60) as client:
        files = {
            name: (PICTURES / file).read_bytes() for name, file in (("image", "dress.jpg"), ("mask", "dress_mask.png"))
        }
        accepted = client.post("/v1/inpaint", files=files, headers={"Prefer": "respond-async"})
        assert accepted.status_code == 202
        wait_until(lambda: client.get(accepted.headers["Location"]).json()["status"] == "running")
        with tab.page.expect_response("**/v1/inpaint") as refused:
            tab.page.click("#fill")
        assert refused.value.status == 503
        expect(tab.page.locator("#busy-text")).to_have_text(
            re.compile(r"The server is busy: trying again in \d+ s"), timeout=30_000
        )
    tab.filled()


def test_a_server_that_starts_is_asked_again_soon_whatever_it_guesses(open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url, expected=REFUSED).open(PICTURES / "dress.jpg").collect()
    loading = {"status": 503, "headers": {"Retry-After": "221"}, "json": {"code": "not_ready"}}
    tab.page.route("**/v1/inpaint", lambda route: route.fulfill(**loading))
    tab.drag(LINE)
    tab.page.click("#fill")
    said = re.compile(r"^The server is starting: trying again in [123] s$")
    expect(tab.page.locator("#busy-text")).to_have_text(said)
    tab.page.unroute("**/v1/inpaint")
    tab.filled()


@pytest.mark.parametrize("at_once", ["0", "-5"])
def test_a_server_that_says_to_come_back_at_once_is_not_asked_without_end(
    open_tab: OpenTab, url: str, at_once: str
) -> None:
    tab = open_tab(url, expected=REFUSED).open(PICTURES / "dress.jpg").collect()
    asked: list[Route] = []

    def answer(route: Route) -> None:
        asked.append(route)
        route.fulfill(status=503, headers={"Retry-After": at_once}, content_type="text/html", body="<h1>Busy</h1>")

    tab.page.route("**/v1/inpaint", answer)
    tab.drag(LINE)
    tab.page.click("#fill")
    expect(tab.page.locator("#busy-text")).to_have_text(re.compile(r"^The server is busy: trying again in [23] s$"))
    assert len(asked) <= 3


def test_of_a_small_picture_the_kilobytes_that_are_sent_are_shown(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve().url}/").open(encoded(noise(200, 200), "noise.png")).collect()
    tab.limit_upload(40_000)
    tab.drag(LINE)
    tab.page.click("#fill")
    expect(tab.page.locator("#busy-text")).to_have_text(re.compile(r"^Filling: \d+ of 12\d kB sent$"))


def test_a_slow_network_shows_how_much_is_sent_and_then_that_it_fills(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve(fake_batch_ms=1500).url}/").open(encoded(noise(1000, 800), "noise.png")).collect()
    tab.limit_upload(800_000)
    tab.drag(LINE)
    tab.page.click("#fill")
    text = tab.page.locator("#busy-text")
    expect(text).to_have_text(re.compile(r"^Filling: 0\.\d of 2\.4 MB sent$"))
    expect(text).to_have_text(re.compile(r"^Filling: 1\.\d of 2\.4 MB sent$"))
    expect(text).to_have_text(re.compile(r"^Filling… \d+ s$"), timeout=20_000)
    tab.filled()


def test_a_fill_is_cancelled_while_it_is_sent(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve().url}/").open(encoded(noise(1000, 800), "noise.png")).collect()
    tab.limit_upload(200_000)
    tab.drag(LINE)
    with tab.page.expect_event("requestfailed") as hung_up:
        tab.page.click("#fill")
        expect(tab.page.locator("#busy-text")).to_contain_text("MB sent")
        tab.page.click("#cancel")
    assert hung_up.value.failure == "net::ERR_ABORTED"
    tab.says("Cancelled")
    expect(tab.page.locator("#busy")).to_be_hidden()
    assert tab.page.locator("#fill").is_enabled()


def test_a_call_that_the_browser_stops_is_made_again(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve(fake_batch_ms=1000).url}/").open(PICTURES / "dress.jpg").collect()
    tab.drag(LINE)
    with tab.page.expect_event("requestfailed"):
        tab.page.click("#fill")
        expect(tab.page.locator("#busy-text")).to_have_text("Filling… 0 s")
        tab.page.evaluate("window.stop()")
    expect(tab.page.locator("#busy-text")).to_contain_text("cannot be reached: trying again in")
    tab.filled()


def test_a_proxy_that_takes_no_file_so_large_is_understood(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve().url}/", expected=REFUSED).open(PICTURES / "dress.jpg").collect()

    def too_large(route: Route) -> None:
        route.fulfill(status=413, content_type="text/html", body="<h1>Request Entity Too Large</h1>")

    tab.page.route("**/v1/inpaint", too_large)
    tab.drag(LINE)
    tab.page.click("#fill")
    tab.says("The file is too large for this server.")
    assert tab.page.locator("#fill").is_enabled()


def test_a_person_who_sent_too_much_is_told_and_the_fill_is_tried_again(
    open_tab: OpenTab, serve: Serve, tmp_path: Path
) -> None:
    key = new_key(tmp_path, rate_per_s=0.25, burst=8)
    server = serve(keys_file=tmp_path / "keys.json")
    tab = open_tab(f"{server.url}/", expected=REFUSED, key=key).open(PICTURES / "dress.jpg").collect()
    tab.drag(LINE)
    headers = {"Authorization": f"Bearer {key}"}
    wait_until(lambda: httpx.get(f"{server.url}/v1/models", headers=headers).status_code == 429)
    tab.page.click("#fill")
    expect(tab.page.locator("#busy-text")).to_have_text(re.compile(r"^Too many requests were sent: trying again"))
    tab.filled()


def test_a_deadline_that_cannot_be_met_is_told_and_the_mask_stays(open_tab: OpenTab, serve: Serve) -> None:
    server = serve(fake_batch_ms=2000, request_timeout_s=0.5)
    tab = open_tab(f"{server.url}/", expected=REFUSED).open(PICTURES / "dress.jpg").collect()
    tab.drag(LINE)
    with tab.page.expect_response("**/v1/inpaint") as late:
        tab.page.click("#fill")
    assert late.value.status == 504
    expect(tab.page.locator("#status.wrong")).to_be_visible(timeout=30_000)
    assert tab.page.locator("#fill").is_enabled()


def test_a_server_that_is_restarted_is_waited_for(open_tab: OpenTab, serve: Serve) -> None:
    server = serve(fake_batch_ms=100)
    tab = open_tab(f"{server.url}/", expected=f"ERR_|{REFUSED}").open(PICTURES / "dress.jpg").collect()
    tab.drag(LINE)
    port = int(server.url.rpartition(":")[2])
    server.kill()
    tab.page.click("#fill")
    expect(tab.page.locator("#busy-text")).to_contain_text("cannot be reached: trying again in", timeout=30_000)
    serve(fake_batch_ms=100, port=port)
    tab.filled()


def test_a_server_that_is_restarted_behind_a_proxy_is_waited_for(open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url, expected=REFUSED).open(PICTURES / "dress.jpg").collect()

    def away(route: Route) -> None:
        route.fulfill(status=502, content_type="text/html", body="<h1>Bad Gateway</h1>")

    tab.page.route("**/v1/inpaint", away, times=1)
    tab.drag(LINE)
    tab.page.click("#fill")
    tab.filled()


@pytest.mark.parametrize(
    "empty",
    [{"status": 204}, *({"status": 200, "content_type": "image/png", "body": body} for body in ("", "\x89PNG"))],
    ids=["204", "no body", "cut off"],
)
def test_a_success_without_a_picture_is_told_and_not_asked_for_again(open_tab: OpenTab, url: str, empty: Any) -> None:
    tab = open_tab(url).open(PICTURES / "dress.jpg").collect()
    asked: list[Route] = []

    def answer(route: Route) -> None:
        asked.append(route)
        route.fulfill(**empty)

    tab.page.route("**/v1/inpaint", answer)
    tab.drag(LINE)
    tab.page.click("#fill")
    tab.says("The reply is empty, or does not come from this server.")
    expect(tab.page.locator("#busy")).to_be_hidden()
    assert tab.page.locator("#fill").is_enabled()
    assert len(asked) == 1


@pytest.mark.parametrize(
    "other", [{"status": 204}, {"status": 200, "content_type": "text/html", "body": "<h1>Sign in</h1>"}]
)
def test_models_that_cannot_be_read_are_told_and_read_again_when_a_person_fills(
    open_tab: OpenTab, serve: Serve, other: Any
) -> None:
    asked: list[Route] = []

    def answer(route: Route) -> None:
        asked.append(route)
        route.fulfill(**other)

    tab = open_tab(f"{serve().url}/")
    tab.page.route("**/v1/models", answer)
    tab.page.reload()
    tab.says("The reply is empty, or does not come from this server.")
    expect(tab.page.locator("#status")).to_be_empty(timeout=30_000)  # the message is not repeated
    assert len(asked) == 1
    tab.page.unroute("**/v1/models")
    tab.open(PICTURES / "dress.jpg")
    tab.drag(LINE)
    tab.filled()


def test_a_server_that_is_gone_when_the_models_are_read_is_named_once(open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url, expected="ERR_")
    tab.page.route("**/v1/models", cut)
    tab.page.reload()
    tab.says("The server cannot be reached.")
    expect(tab.page.locator("#status")).to_be_empty(timeout=20_000)
    tab.page.unroute("**/v1/models")
    expect(tab.page.locator("#model")).to_have_value("photos/5")


def cut(route: Route) -> None:
    """Cut the connection."""
    route.abort("connectionreset")


def bad_gateway(route: Route) -> None:
    """Answer 502 as a proxy does."""
    route.fulfill(status=502, content_type="text/html", body="<h1>Bad Gateway</h1>")


def another_page(route: Route) -> None:
    """Answer 200 with another page, as a web filter does."""
    route.fulfill(status=200, content_type="text/html", body="<h1>Blocked</h1>")


def not_understood(route: Route) -> None:
    """Answer with a script that the browser cannot parse, as an old browser."""
    route.fulfill(status=200, content_type="text/javascript", body="let picture = ;")


@pytest.mark.parametrize("fault", [cut, bad_gateway, another_page, not_understood])
def test_a_page_whose_script_does_not_start_says_so(browser: Browser, url: str, fault: Fault) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.route(SCRIPT, fault)
        page.goto(url)
        expect(page.locator("#open")).to_be_disabled()
        expect(page.locator("#status")).to_be_hidden()  # a slow script does not count as missing yet
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
    """Set the style sheet's animations to 10 s, past their delays."""
    page.evaluate("document.getAnimations().forEach(animation => (animation.currentTime = 10_000))")
