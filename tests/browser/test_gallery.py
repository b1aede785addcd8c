"""The gallery of stored results: their owner alone sees, edits, saves and deletes them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import httpx
import numpy as np
from PIL import Image
from playwright.sync_api import APIResponse, Route, expect

from tests.browser.conftest import ROOT, OpenTab, Serve
from tests.browser.tab import PICTURES, Tab
from tests.browser.test_access import SCREENS, violations
from tests.serving.waiting import wait_until

REFUSED = "the server responded with a status of"
WAIT_MS = 60_000


def kept(url: str, count: int, key: str = "") -> list[str]:
    """Make `count` stored results; returns their addresses, oldest first."""
    files = {
        name: (PICTURES / file).read_bytes() for name, file in (("image", "dress.jpg"), ("mask", "dress_mask.png"))
    }
    found = []
    with httpx.Client(base_url=url, timeout=60, headers={"X-API-Key": key} if key else {}) as client:
        for _ in range(count):
            reply = client.post("/v1/inpaint", files=files)
            reply.raise_for_status()
            found.append(reply.headers["Location"])
    return found


def shown(tab: Tab, count: int) -> Tab:
    """Open the gallery and wait for `count` results."""
    tab.page.click("#tab-results")
    loaded(tab, count)
    return tab


def loaded(tab: Tab, count: int) -> None:
    """Wait for `count` results with their thumbnails."""
    expect(tab.page.locator("#kept figure")).to_have_count(count, timeout=WAIT_MS)
    for image in tab.page.locator("#kept img").all():
        expect(image).not_to_have_js_property("naturalWidth", 0, timeout=WAIT_MS)


COUNT_BLOBS = """() => {
    window.blobs = new Set();
    const {createObjectURL, revokeObjectURL} = URL;
    URL.createObjectURL = (blob) => { const url = createObjectURL(blob); blobs.add(url); return url; };
    URL.revokeObjectURL = (url) => { blobs.delete(url); revokeObjectURL(url); };
}"""
"""Script that records the URLs of blobs not yet revoked."""


def new_key(folder: Path, *scopes: str, **limits: float) -> str:
    """Add a key to a file and return it, in the checkout's environment, as this one lacks the service's modules."""
    fields = {"scopes": scopes, **limits} if scopes else limits
    made = f"from tests.serving.key_files import *; print(add_key(Path({str(folder / 'keys.json')!r}), **{fields}))"
    command = [ROOT / ".venv/bin/python", "-c", made]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()


def test_results_are_shown_small_and_the_newest_first(open_tab: OpenTab, serve: Serve) -> None:
    server = serve()
    tab = open_tab(f"{server.url}/")
    tab.page.click("#tab-results")
    expect(tab.page.locator("#kept-count")).to_have_text("No results.")
    kept(server.url, 3)
    shown(tab, 3)
    expect(tab.page.locator("#kept-count")).to_have_text("3 results.")
    sizes = tab.page.locator("#kept img").evaluate_all("all => all.map(i => [i.naturalWidth, i.naturalHeight])")
    assert sizes == [[240, 320]] * 3
    # a result made meanwhile appears when the gallery is opened again
    last = kept(server.url, 1)[0]
    shown(tab, 4)
    with tab.page.expect_response(f"**{last}") as reply:
        tab.page.locator("#kept figure").first.get_by_text("Edit", exact=True).click()
    assert reply.value.ok


def test_more_come_while_one_scrolls(open_tab: OpenTab, serve: Serve) -> None:
    server = serve()
    kept(server.url, 60)
    tab = shown(open_tab(f"{server.url}/"), 24)
    expect(tab.page.locator("#kept-count")).to_have_text("24 results, more below.")
    for count in (48, 60):
        tab.page.locator("#kept figure").last.scroll_into_view_if_needed()
        loaded(tab, count)
    expect(tab.page.locator("#kept-count")).to_have_text("60 results.")


def test_more_come_though_the_last_one_shown_was_deleted(open_tab: OpenTab, serve: Serve) -> None:
    server = serve()
    kept(server.url, 30)
    tab = shown(open_tab(f"{server.url}/", viewport={"width": 1440, "height": 400}), 24)
    tab.page.once("dialog", lambda dialog: dialog.accept())
    tab.page.evaluate("document.querySelector('#kept figure:last-child button:last-of-type').click()")
    tab.says("Deleted")
    tab.page.locator("#kept figure").last.scroll_into_view_if_needed()
    loaded(tab, 29)


def test_no_thumbnail_stays_in_memory_that_is_shown_no_more(open_tab: OpenTab, serve: Serve) -> None:
    """One thumbnail arrives after its result was deleted; the other is shown when the gallery is opened again."""
    server = serve()
    _, newest = kept(server.url, 2)
    tab = open_tab(f"{server.url}/")
    tab.page.evaluate(COUNT_BLOBS)
    late: list[tuple[Route, APIResponse]] = []
    tab.page.route(f"**{newest}/thumbnail", lambda route: late.append((route, route.fetch())))
    tab.page.click("#tab-results")
    expect(tab.page.locator("#kept figure")).to_have_count(2)
    wait_until(lambda: tab.page.evaluate("blobs.size") == 1 and late)
    tab.page.once("dialog", lambda dialog: dialog.accept())
    tab.page.locator("#kept button:has-text('Delete')").first.click()
    tab.says("Deleted")
    ((route, thumbnail),) = late
    with tab.page.expect_event("requestfinished"):
        route.fulfill(response=thumbnail)
    tab.page.wait_for_timeout(200)
    assert tab.page.evaluate("blobs.size") == 1, "of a result that is not there any more"
    tab.page.click("#tab-results")
    loaded(tab, 1)
    assert tab.page.evaluate("blobs.size") == 1


def test_a_result_that_was_deleted_elsewhere_is_taken_out(open_tab: OpenTab, serve: Serve) -> None:
    server = serve()
    _, newest = kept(server.url, 2)
    tab = shown(open_tab(f"{server.url}/", expected=REFUSED), 2)
    httpx.delete(f"{server.url}{newest}")
    tab.page.click("#kept button:has-text('Edit') >> nth=0")
    tab.says("was deleted")
    expect(tab.page.locator("#kept figure")).to_have_count(1)
    expect(tab.page.locator("#kept-count")).to_have_text("1 result.")
    expect(tab.page.locator("#kept button").first).to_be_focused()


def test_a_result_is_painted_on_and_saved_as_it_is(open_tab: OpenTab, serve: Serve) -> None:
    server = serve()
    (address,) = kept(server.url, 1)
    tab = shown(open_tab(f"{server.url}/"), 1)
    with tab.page.expect_download() as download:
        tab.page.click("#kept button:has-text('Save')")
    original = httpx.get(f"{server.url}{address}").content
    assert download.value.path().read_bytes() == original
    assert download.value.suggested_filename.endswith(".png")
    tab.page.click("#kept button:has-text('Edit')")
    expect(tab.page.locator("#panel-inpaint")).to_be_visible()
    tab.says("is open")
    assert (np.asarray(tab.saved()) == np.asarray(Image.open(download.value.path()))).all()


def test_a_result_is_deleted_once_that_is_confirmed(open_tab: OpenTab, serve: Serve) -> None:
    server = serve()
    first, second = kept(server.url, 2)
    tab = shown(open_tab(f"{server.url}/"), 2)
    asked: list[str] = []
    tab.page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    tab.page.locator("#kept button:has-text('Delete')").first.click()
    assert "cannot be undone" in asked[0]
    assert httpx.get(f"{server.url}{second}").status_code == 200
    tab.page.once("dialog", lambda dialog: dialog.accept())
    tab.page.locator("#kept button:has-text('Delete')").first.click()
    tab.says("Deleted")
    expect(tab.page.locator("#kept figure")).to_have_count(1)
    expect(tab.page.locator("#kept-count")).to_have_text("1 result.")
    assert httpx.get(f"{server.url}{second}").status_code == 410
    assert httpx.get(f"{server.url}{first}").status_code == 200
    expect(tab.page.locator("#kept button").first).to_be_focused()


def test_the_keyboard_alone_is_enough(open_tab: OpenTab, serve: Serve) -> None:
    server = serve()
    kept(server.url, 2)
    tab = open_tab(f"{server.url}/")
    tab.page.focus("#tab-inpaint")
    tab.page.keyboard.press("ArrowLeft")  # wraps around to the last one
    loaded(tab, 2)
    tab.page.on("dialog", lambda dialog: dialog.accept())
    reached = []
    for _ in range(12):
        tab.page.keyboard.press("Tab")
        reached.append(tab.page.evaluate("document.activeElement.textContent"))
        if reached[-1] == "Delete":
            break
    assert reached[-3:] == ["Edit", "Save", "Delete"]
    tab.page.keyboard.press("Enter")
    expect(tab.page.locator("#kept figure")).to_have_count(1)
    expect(tab.page.locator("#kept button").first).to_be_focused()
    tab.page.keyboard.press("Enter")
    tab.says("is open")


def test_a_server_that_is_gone_is_named_while_results_are_looked_at(open_tab: OpenTab, serve: Serve) -> None:
    server = serve()
    kept(server.url, 1)
    tab = open_tab(f"{server.url}/", expected="ERR_")
    server.kill()
    tab.page.click("#tab-results")
    tab.says("cannot be reached")
    tab.page.click("#tab-inpaint")
    tab.open(PICTURES / "dress.jpg")
    tab.page.wait_for_timeout(3500)
    assert "reached" not in (tab.page.text_content("#status") or "")


def test_axe_finds_nothing_and_a_phone_shows_all_of_it(open_tab: OpenTab, serve: Serve) -> None:
    server = serve()
    kept(server.url, 3)
    for scheme, (width, height) in zip(("light", "dark", "light", "dark"), SCREENS.values(), strict=True):
        tab = shown(open_tab(f"{server.url}/", viewport={"width": width, "height": height}, color_scheme=scheme), 3)
        tab.page.wait_for_timeout(300)
        assert violations(tab) == []
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
        for button in tab.page.locator("button:visible").all():
            box = button.bounding_box()
            assert min(box["width"], box["height"]) >= 44
            assert 0 <= box["x"] <= box["x"] + box["width"] <= width


def test_it_is_hidden_from_a_key_that_may_not_list_and_the_key_is_kept(
    open_tab: OpenTab, serve: Serve, tmp_path: Path
) -> None:
    key = new_key(tmp_path, "inference")
    server = serve(keys_file=tmp_path / "keys.json")
    tab = open_tab(f"{server.url}/", expected=REFUSED, key=key)
    assert tab.page.locator("#tab-results").is_hidden()
    tab.open(PICTURES / "dress.jpg").collect()
    tab.drag(((100, 150), (140, 150)))
    tab.fill()


def test_an_owner_sees_their_own_and_without_the_scope_deletes_none(
    open_tab: OpenTab, serve: Serve, tmp_path: Path
) -> None:
    mine, other = (new_key(tmp_path, "inference", "results:read") for _ in range(2))
    server = serve(keys_file=tmp_path / "keys.json")
    (address,) = kept(server.url, 1, mine)
    kept(server.url, 2, other)
    tab = shown(open_tab(f"{server.url}/", expected=REFUSED, key=mine), 1)
    tab.page.on("dialog", lambda dialog: dialog.accept())
    tab.page.click("#kept button:has-text('Delete')")
    tab.says("results:delete")
    assert httpx.get(f"{server.url}{address}", headers={"X-API-Key": mine}).status_code == 200
    shown(tab, 1)


def test_it_is_hidden_where_the_server_keeps_no_lists(open_tab: OpenTab, serve: Serve) -> None:
    server = serve(host="0.0.0.0", allow_anonymous=True)
    address = server.url.replace("0.0.0.0", "127.0.0.1")
    tab = open_tab(f"{address}/", expected=REFUSED)
    assert tab.page.locator("#tab-results").is_hidden()
    assert tab.page.locator("#panel-inpaint").is_visible()


def test_a_message_about_one_task_is_not_shown_over_the_next(tab: Tab) -> None:
    tab.page.keyboard.press("Control+s")
    tab.says("Open a photograph first.")
    tab.page.click("#tab-results")
    expect(tab.page.locator("#status")).to_be_empty()
