"""Starting the page: what is seen where its script does not come or does not run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page, Route, expect

SCRIPT = "**/page/app.js"
Fault = Callable[[Route], None]


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
