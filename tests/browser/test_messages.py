"""The two boxes over the picture: the status line, and the line that shows what is waited for."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.conftest import OpenTab, Serve
from tests.browser.tab import PICTURES
from tests.browser.test_gallery import REFUSED

OPACITY_WITHOUT_TEXT = "line => { line.textContent = ''; return getComputedStyle(line).opacity; }"
WIDTHS_OF_LINES = """
    words => {
      const all = new Range();
      all.selectNodeContents(words);
      return [...all.getClientRects()].map(({ width }) => width);
    }"""


def test_a_message_that_is_over_leaves_no_empty_box_behind(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve().url}/").open(PICTURES / "dress.jpg")
    expect(tab.page.locator("#status")).to_have_css("opacity", "1")
    assert tab.page.locator("#status").evaluate(OPACITY_WITHOUT_TEXT) == "0"


def test_on_a_phone_no_line_of_a_wait_holds_its_last_letter_alone(open_tab: OpenTab, serve: Serve) -> None:
    phone = {"width": 375, "height": 667}
    tab = open_tab(f"{serve().url}/", expected=f"{REFUSED}|ERR_", viewport=phone).open(PICTURES / "dress.jpg").collect()
    tab.page.route("**/v1/inpaint", lambda route: route.abort())
    tab.drag(((100, 150), (140, 150)))
    tab.page.click("#fill")
    words = tab.page.locator("#busy-text")
    expect(words).to_contain_text("cannot be reached: trying again in", timeout=30_000)
    widths = words.evaluate(WIDTHS_OF_LINES)
    assert min(widths) > max(widths) / 3
