"""The results that the server keeps: shown, painted on, saved and deleted by their owner alone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import httpx
import numpy as np
from PIL import Image
from playwright.sync_api import APIResponse, Route, expect

from tests.browser.conftest import ROOT, Serve, Tab
from tests.browser.desk import PICTURES, Desk
from tests.browser.test_access import SCREENS, violations
from tests.serving.waiting import wait_until

REFUSED = "the server responded with a status of"
WAIT_MS = 60_000


def kept(url: str, count: int, key: str = "") -> list[str]:
    """Have so many results computed and kept; their addresses, the oldest first."""
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


def shown(desk: Desk, count: int) -> Desk:
    """Open the gallery and wait for so many results."""
    desk.page.click("#tab-results")
    loaded(desk, count)
    return desk


def loaded(desk: Desk, count: int) -> None:
    """Wait for so many results with their small pictures."""
    expect(desk.page.locator("#kept figure")).to_have_count(count, timeout=WAIT_MS)
    for image in desk.page.locator("#kept img").all():
        expect(image).not_to_have_js_property("naturalWidth", 0, timeout=WAIT_MS)


COUNT_BLOBS = """() => {
    window.blobs = new Set();
    const {createObjectURL, revokeObjectURL} = URL;
    URL.createObjectURL = (blob) => { const url = createObjectURL(blob); blobs.add(url); return url; };
    URL.revokeObjectURL = (url) => { blobs.delete(url); revokeObjectURL(url); };
}"""
"""Keeps the addresses of blobs that hold memory."""


def new_key(folder: Path, *scopes: str, **limits: float) -> str:
    """A new key in a file, made by the service's own modules, which this environment lacks."""
    fields = {"scopes": scopes, **limits} if scopes else limits
    made = f"from tests.serving.key_files import *; print(add_key(Path({str(folder / 'keys.json')!r}), **{fields}))"
    command = [ROOT / ".venv/bin/python", "-c", made]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.strip()


def test_results_are_shown_small_and_the_newest_first(tab: Tab, serve: Serve) -> None:
    server = serve()
    desk = tab(f"{server.url}/")
    desk.page.click("#tab-results")
    expect(desk.page.locator("#kept-count")).to_have_text("No results.")
    kept(server.url, 3)
    shown(desk, 3)
    expect(desk.page.locator("#kept-count")).to_have_text("3 results.")
    sizes = desk.page.locator("#kept img").evaluate_all("all => all.map(i => [i.naturalWidth, i.naturalHeight])")
    assert sizes == [[240, 320]] * 3
    # a result that comes meanwhile is there when the gallery is opened again
    last = kept(server.url, 1)[0]
    shown(desk, 4)
    with desk.page.expect_response(f"**{last}") as reply:
        desk.page.locator("#kept figure").first.get_by_text("Paint on it").click()
    assert reply.value.ok


def test_more_come_while_one_scrolls(tab: Tab, serve: Serve) -> None:
    server = serve()
    kept(server.url, 60)
    desk = shown(tab(f"{server.url}/"), 24)
    expect(desk.page.locator("#kept-count")).to_have_text("24 results, more below.")
    for count in (48, 60):
        desk.page.locator("#kept figure").last.scroll_into_view_if_needed()
        loaded(desk, count)
    expect(desk.page.locator("#kept-count")).to_have_text("60 results.")


def test_more_come_though_the_last_one_shown_was_deleted(tab: Tab, serve: Serve) -> None:
    server = serve()
    kept(server.url, 30)
    desk = shown(tab(f"{server.url}/", viewport={"width": 1440, "height": 400}), 24)
    desk.page.once("dialog", lambda dialog: dialog.accept())
    desk.page.evaluate("document.querySelector('#kept figure:last-child button:last-of-type').click()")
    desk.says("Deleted")
    desk.page.locator("#kept figure").last.scroll_into_view_if_needed()
    loaded(desk, 29)


def test_no_thumbnail_stays_in_memory_that_is_shown_no_more(tab: Tab, serve: Serve) -> None:
    """One comes when its result was deleted; the others are shown, and the gallery is then opened anew."""
    server = serve()
    _, newest = kept(server.url, 2)
    desk = tab(f"{server.url}/")
    desk.page.evaluate(COUNT_BLOBS)
    late: list[tuple[Route, APIResponse]] = []
    desk.page.route(f"**{newest}/thumbnail", lambda route: late.append((route, route.fetch())))
    desk.page.click("#tab-results")
    expect(desk.page.locator("#kept figure")).to_have_count(2)
    wait_until(lambda: desk.page.evaluate("blobs.size") == 1 and late)
    desk.page.once("dialog", lambda dialog: dialog.accept())
    desk.page.locator("#kept button:has-text('Delete')").first.click()
    desk.says("Deleted")
    ((route, thumbnail),) = late
    with desk.page.expect_event("requestfinished"):
        route.fulfill(response=thumbnail)
    desk.page.wait_for_timeout(200)
    assert desk.page.evaluate("blobs.size") == 1, "of a result that is not there any more"
    desk.page.click("#tab-results")
    loaded(desk, 1)
    assert desk.page.evaluate("blobs.size") == 1


def test_a_result_that_was_deleted_elsewhere_is_taken_out(tab: Tab, serve: Serve) -> None:
    server = serve()
    _, newest = kept(server.url, 2)
    desk = shown(tab(f"{server.url}/", expected=REFUSED), 2)
    httpx.delete(f"{server.url}{newest}")
    desk.page.click("#kept button:has-text('Paint on it') >> nth=0")
    desk.says("was deleted")
    expect(desk.page.locator("#kept figure")).to_have_count(1)
    expect(desk.page.locator("#kept-count")).to_have_text("1 result.")
    expect(desk.page.locator("#kept button").first).to_be_focused()


def test_a_result_is_painted_on_and_saved_as_it_is(tab: Tab, serve: Serve) -> None:
    server = serve()
    (address,) = kept(server.url, 1)
    desk = shown(tab(f"{server.url}/"), 1)
    with desk.page.expect_download() as download:
        desk.page.click("#kept button:has-text('Save')")
    original = httpx.get(f"{server.url}{address}").content
    assert download.value.path().read_bytes() == original
    assert download.value.suggested_filename.endswith(".png")
    desk.page.click("#kept button:has-text('Paint on it')")
    expect(desk.page.locator("#panel-inpaint")).to_be_visible()
    desk.says("is open")
    assert (np.asarray(desk.saved()) == np.asarray(Image.open(download.value.path()))).all()


def test_a_result_is_deleted_once_that_is_confirmed(tab: Tab, serve: Serve) -> None:
    server = serve()
    first, second = kept(server.url, 2)
    desk = shown(tab(f"{server.url}/"), 2)
    asked: list[str] = []
    desk.page.once("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    desk.page.locator("#kept button:has-text('Delete')").first.click()
    assert "for good" in asked[0]
    assert httpx.get(f"{server.url}{second}").status_code == 200
    desk.page.once("dialog", lambda dialog: dialog.accept())
    desk.page.locator("#kept button:has-text('Delete')").first.click()
    desk.says("Deleted")
    expect(desk.page.locator("#kept figure")).to_have_count(1)
    expect(desk.page.locator("#kept-count")).to_have_text("1 result.")
    assert httpx.get(f"{server.url}{second}").status_code == 410
    assert httpx.get(f"{server.url}{first}").status_code == 200
    expect(desk.page.locator("#kept button").first).to_be_focused()


def test_the_keyboard_alone_is_enough(tab: Tab, serve: Serve) -> None:
    server = serve()
    kept(server.url, 2)
    desk = tab(f"{server.url}/")
    desk.page.focus("#tab-inpaint")
    desk.page.keyboard.press("ArrowLeft")  # around, to the last one
    loaded(desk, 2)
    desk.page.on("dialog", lambda dialog: dialog.accept())
    reached = []
    for _ in range(12):
        desk.page.keyboard.press("Tab")
        reached.append(desk.page.evaluate("document.activeElement.textContent"))
        if reached[-1] == "Delete":
            break
    assert reached[-3:] == ["Paint on it", "Save", "Delete"]
    desk.page.keyboard.press("Enter")
    expect(desk.page.locator("#kept figure")).to_have_count(1)
    expect(desk.page.locator("#kept button").first).to_be_focused()
    desk.page.keyboard.press("Enter")
    desk.says("is open")


def test_a_server_that_is_gone_is_named_while_results_are_looked_at(tab: Tab, serve: Serve) -> None:
    server = serve()
    kept(server.url, 1)
    desk = tab(f"{server.url}/", expected="ERR_")
    server.kill()
    desk.page.click("#tab-results")
    desk.says("cannot be reached")
    desk.page.click("#tab-inpaint")
    desk.open(PICTURES / "dress.jpg")
    desk.page.wait_for_timeout(3500)
    assert "reached" not in (desk.page.text_content("#status") or "")


def test_axe_finds_nothing_and_a_phone_shows_all_of_it(tab: Tab, serve: Serve) -> None:
    server = serve()
    kept(server.url, 3)
    for scheme, (width, height) in zip(("light", "dark", "light", "dark"), SCREENS.values(), strict=True):
        desk = shown(tab(f"{server.url}/", viewport={"width": width, "height": height}, color_scheme=scheme), 3)
        desk.page.wait_for_timeout(300)
        assert violations(desk) == []
        assert desk.page.evaluate("document.documentElement.scrollWidth") <= width
        for button in desk.page.locator("button:visible").all():
            box = button.bounding_box()
            assert min(box["width"], box["height"]) >= 44
            assert 0 <= box["x"] <= box["x"] + box["width"] <= width


def test_it_is_hidden_from_a_key_that_may_not_list_and_the_key_is_kept(tab: Tab, serve: Serve, tmp_path: Path) -> None:
    key = new_key(tmp_path, "inference")
    server = serve(keys_file=tmp_path / "keys.json")
    desk = tab(f"{server.url}/", expected=REFUSED, key=key)
    assert desk.page.locator("#tab-results").is_hidden()
    desk.open(PICTURES / "dress.jpg").collect()
    desk.drag(((100, 150), (140, 150)))
    desk.fill()


def test_an_owner_sees_their_own_and_without_the_scope_deletes_none(tab: Tab, serve: Serve, tmp_path: Path) -> None:
    mine, other = (new_key(tmp_path, "inference", "results:read") for _ in range(2))
    server = serve(keys_file=tmp_path / "keys.json")
    (address,) = kept(server.url, 1, mine)
    kept(server.url, 2, other)
    desk = shown(tab(f"{server.url}/", expected=REFUSED, key=mine), 1)
    desk.page.on("dialog", lambda dialog: dialog.accept())
    desk.page.click("#kept button:has-text('Delete')")
    desk.says("results:delete")
    assert httpx.get(f"{server.url}{address}", headers={"X-API-Key": mine}).status_code == 200
    shown(desk, 1)


def test_it_is_hidden_where_the_server_keeps_no_lists(tab: Tab, serve: Serve) -> None:
    server = serve(host="0.0.0.0", allow_anonymous=True)
    address = server.url.replace("0.0.0.0", "127.0.0.1")
    desk = tab(f"{address}/", expected=REFUSED)
    assert desk.page.locator("#tab-results").is_hidden()
    assert desk.page.locator("#panel-inpaint").is_visible()
