"""Recovery: undo, redo, return to the original, and reload; forgotten pictures are not kept."""

from __future__ import annotations

import numpy as np
from playwright.sync_api import expect

from tests.browser.conftest import SIDE, OpenTab, Serve
from tests.browser.tab import PICTURES, Tab, encoded, noise
from tests.browser.test_filling import STORED_WORK
from tests.serving.waiting import wait_until

KEPT_AFTER_MS = 1500
HOLD_THE_LOCK = """milliseconds => new Promise(held => {
    navigator.locks.request("retouch-work", () => {
        held();
        return new Promise(resolve => setTimeout(resolve, milliseconds));
    });
})"""
KEEP_THE_STORE_BUSY = """async () => {
    const open = indexedDB.open("retouch");
    const database = await new Promise(resolve => { open.onsuccess = () => resolve(open.result); });
    const stores = database.transaction([...database.objectStoreNames], "readwrite");
    const again = () => { stores.objectStore("masks").count().onsuccess = again; };
    again();
}"""
FAIL_TO_DECODE_TWICE = """
    if (!sessionStorage.failed) {
        sessionStorage.failed = 1;
        const decode = createImageBitmap;
        let failures = 2;
        createImageBitmap = (...given) => failures-- > 0 ? Promise.reject(new Error("no memory")) : decode(...given);
    }
"""
AGED = """async () => {
    const open = indexedDB.open("retouch");
    const database = await new Promise(resolve => { open.onsuccess = () => resolve(open.result); });
    const pictures = database.transaction("pictures", "readwrite").objectStore("pictures");
    const read = pictures.getAll();
    const all = await new Promise(resolve => { read.onsuccess = () => resolve(read.result); });
    for (const one of all) pictures.put({...one, saved: one.saved - 8 * 24 * 3600 * 1000});
    await new Promise(resolve => { pictures.transaction.oncomplete = resolve; });
    database.close();
}"""


def test_a_reload_brings_photographs_masks_and_fills_back(tab: Tab) -> None:
    tab.open(PICTURES / "dress.jpg", PICTURES / "skirt.jpg").collect()
    tab.drag(((100, 150), (140, 150)))
    tab.fill()
    filled = np.asarray(tab.saved())
    tab.drag(((60, 60), (90, 60)))
    mask = tab.mask()
    tab.page.wait_for_timeout(KEPT_AFTER_MS)
    tab.go()
    tab.says("Your work is back")
    expect(tab.page.locator("#strip li")).to_have_count(2)
    assert (tab.mask() == mask).all()
    assert (np.asarray(tab.saved()) == filled).all()
    for _ in range(2):
        tab.page.keyboard.press("Control+z")
    assert (np.asarray(tab.saved()) != filled).any(), "a fill cannot be undone after a reload"


def test_a_thumbnail_shows_the_fills_of_its_photograph_also_after_a_reload(tab: Tab) -> None:
    tab.open(*(encoded(noise(200, 200, seed=i), f"{i}.png") for i in range(2))).collect()
    before = [tab.thumbnail(f"{i}.png") for i in range(2)]
    tab.brush(20)
    tab.drag(((60, 60), (140, 60)))
    tab.fill()
    filled = tab.thumbnail("0.png")
    changed, side = (filled != before[0]).any(axis=2), len(filled)
    assert changed[side * 55 // 200 : side * 65 // 200, side * 60 // 200 : side * 140 // 200].mean() > 0.9
    assert not changed[side // 2 :].any()
    assert (tab.thumbnail("1.png") == before[1]).all()
    tab.page.wait_for_timeout(KEPT_AFTER_MS)
    tab.go().says("Your work is back")
    assert (tab.thumbnail("0.png") == filled).all()
    tab.page.keyboard.press("Control+z")
    assert (tab.thumbnail("0.png") == before[0]).all()


def test_a_stored_photograph_that_cannot_be_opened_is_tried_again_at_the_next_reload(tab: Tab) -> None:
    tab.open(PICTURES / "dress.jpg", PICTURES / "skirt.jpg").collect()
    tab.page.wait_for_timeout(KEPT_AFTER_MS)
    tab.page.add_init_script(FAIL_TO_DECODE_TWICE)
    tab.go().says("Not every stored photograph could be opened")
    tab.open(PICTURES / "crocs.jpg").collect()  # stores, which must not remove the others
    tab.page.wait_for_timeout(KEPT_AFTER_MS)
    tab.go().says("Your work is back")
    expect(tab.page.locator("#strip li")).to_have_count(3)


def test_a_page_that_is_left_before_its_work_is_stored_asks_first(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve().url}/")
    tab.open(encoded(noise(SIDE, SIDE), "noise.gif", "GIF")).collect()
    other = tab.page.context.new_page()
    other.goto(f"{tab.url}page/icon.svg")
    other.evaluate(KEEP_THE_STORE_BUSY)
    tab.page.bring_to_front()
    tab.drag(((100, 150), (140, 150)))
    tab.page.wait_for_timeout(KEPT_AFTER_MS)
    tab.leave().dismiss()
    other.close()
    wait_until(lambda: '"diff"' in tab.page.evaluate(STORED_WORK))
    tab.go().says("Your work is back")
    assert tab.mask()[150, 100:140].all()


def test_a_reload_waits_for_the_page_that_it_replaces(open_tab: OpenTab, serve: Serve) -> None:
    """An unloaded page may hold its lock for seconds on a busy machine; here a page that cannot answer holds it."""
    url = f"{serve().url}/"
    tab = open_tab(url).open(PICTURES / "dress.jpg")
    wait_until(lambda: tab.page.evaluate(STORED_WORK) != "[]")
    other = tab.page.context.new_page()
    other.goto(f"{url}page/icon.svg")
    tab.page.goto("about:blank")
    other.evaluate(HOLD_THE_LOCK, 4000)
    tab.go().says("Your work is back")


def test_a_reload_during_a_fill_keeps_its_mask(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve(fake_batch_ms=2500).url}/").open(PICTURES / "dress.jpg")
    tab.drag(((100, 150), (140, 150)))
    expect(tab.page.locator("#busy")).to_be_visible()
    tab.page.wait_for_timeout(KEPT_AFTER_MS / 2)
    tab.go()
    tab.says("Your work is back")
    assert tab.mask()[150, 100:140].all()


def test_one_button_forgets_everything(tab: Tab) -> None:
    tab.open(PICTURES / "dress.jpg").collect()
    tab.drag(((100, 150), (140, 150)))
    tab.page.wait_for_timeout(KEPT_AFTER_MS)
    tab.choose("save-menu", "#forget")
    tab.says("Deleted: this browser")
    tab.go()
    expect(tab.page.locator("#empty")).to_be_visible()


def test_what_is_older_than_a_week_is_removed(tab: Tab) -> None:
    tab.open(PICTURES / "dress.jpg").collect()
    tab.drag(((100, 150), (140, 150)))
    tab.page.wait_for_timeout(KEPT_AFTER_MS)
    tab.page.evaluate(AGED)
    tab.go()
    expect(tab.page.locator("#empty")).to_be_visible()
    assert tab.page.evaluate(STORED_WORK) == "[]"


def test_a_second_tab_neither_takes_nor_overwrites_the_first_ones_work(tab: Tab, url: str) -> None:
    tab.open(PICTURES / "dress.jpg").collect()
    tab.drag(((100, 150), (140, 150)))
    tab.page.wait_for_timeout(KEPT_AFTER_MS)
    second = Tab(tab.page.context.new_page(), url).go()
    expect(second.page.locator("#empty")).to_be_visible()
    second.says("Retouch is open in another tab")
    second.open(PICTURES / "skirt.jpg").collect()
    second.drag(((60, 60), (90, 60)))
    second.page.wait_for_timeout(KEPT_AFTER_MS)
    second.leave().accept()
    tab.go()
    assert "dress.jpg" in (tab.page.get_attribute("#surface", "aria-label") or "")


def test_what_one_tab_forgets_no_other_tab_writes_again(tab: Tab, url: str) -> None:
    tab.open(PICTURES / "dress.jpg").collect()
    tab.drag(((100, 150), (140, 150)))
    tab.fill()
    tab.page.wait_for_timeout(KEPT_AFTER_MS)
    second = Tab(tab.page.context.new_page(), url).go()
    second.open(PICTURES / "skirt.jpg")
    second.choose("save-menu", "#forget")
    tab.says("Deleted: this browser")
    tab.drag(((60, 60), (90, 60)))
    tab.page.wait_for_timeout(KEPT_AFTER_MS)
    assert tab.page.evaluate(STORED_WORK) == "[]"


def test_a_hundred_strokes_are_undone_and_done_again(open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url).open(encoded(noise(300, 300), "noise.png")).collect()
    tab.brush(10)
    for i in range(100):
        x, y = 15 + (i % 10) * 28, 15 + (i // 10) * 28
        tab.drag(((x, y), (x + 8, y)))
    whole = tab.mask()
    for _ in range(100):
        tab.page.keyboard.press("Control+z")
    assert tab.page.locator("#undo").is_disabled()
    assert tab.page.locator("#fill").is_disabled(), "something is still painted"
    for _ in range(100):
        tab.page.keyboard.press("Control+Shift+z")
    assert (tab.mask() == whole).all()
    assert tab.page.locator("#redo").is_disabled()


def test_strokes_and_fills_are_undone_in_the_order_they_were_done(tab: Tab) -> None:
    tab.open(PICTURES / "dress.jpg").collect()
    before = np.asarray(tab.saved())
    tab.drag(((100, 150), (140, 150)))
    stroke = tab.mask()
    tab.fill()
    filled = np.asarray(tab.saved())
    assert (filled != before).any()
    tab.drag(((60, 60), (80, 60)))
    tab.page.click("#undo")  # the second stroke
    assert tab.page.locator("#fill").is_disabled()
    assert (np.asarray(tab.saved()) == filled).all()
    tab.page.click("#undo")  # the fill, whose mask is back
    assert (tab.mask() == stroke).all()
    assert (np.asarray(tab.saved()) == before).all()
    tab.page.click("#redo")
    assert (np.asarray(tab.saved()) == filled).all()


def test_a_stroke_that_was_filled_when_let_go_is_one_step(tab: Tab) -> None:
    tab.open(PICTURES / "dress.jpg")
    tab.drag(((100, 150), (140, 150)))
    tab.filled()
    tab.page.keyboard.press("Control+z")
    tab.says("Undone")
    assert tab.page.locator("#undo").is_disabled()
    assert tab.page.locator("#fill").is_disabled()


def test_a_stroke_that_is_undone_before_it_is_let_go_is_cancelled(tab: Tab) -> None:
    tab.open(PICTURES / "dress.jpg")
    tab.page.mouse.move(*tab.on_screen((100, 150)))
    tab.page.mouse.down()
    tab.page.mouse.move(*tab.on_screen((140, 150)))
    tab.page.keyboard.press("Control+z")
    tab.page.mouse.up()
    tab.says("Cancelled.")


def test_what_was_undone_cannot_be_redone_after_a_new_stroke(open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url).open(encoded(noise(300, 300), "noise.png")).collect()
    tab.drag(((50, 50), (90, 50)))
    tab.page.keyboard.press("Control+z")
    tab.drag(((50, 150), (90, 150)))
    assert tab.page.locator("#redo").is_disabled()


def test_the_divider_and_the_held_button_show_the_original(tab: Tab) -> None:
    tab.open(PICTURES / "dress.jpg").collect()
    stage = tab.page.locator("#layer-picture")
    shown = "canvas => canvas.toDataURL()"
    before = stage.evaluate(shown)
    tab.drag(((100, 150), (140, 150)))
    tab.fill()
    after = stage.evaluate(shown)
    assert after != before
    tab.page.hover("#peek")
    tab.page.mouse.down()
    canvas = stage.element_handle()
    tab.page.wait_for_function("([canvas, before]) => canvas.toDataURL() === before", arg=[canvas, before])
    tab.page.mouse.up()
    tab.page.click("#compare")
    tab.page.drag_and_drop("#divider span", "#save-menu summary", force=True)
    tab.page.wait_for_timeout(200)
    box = tab.page.locator("#divider").bounding_box()
    assert box["x"] > 1200
    assert stage.evaluate(shown) == before
    tab.page.press("#divider", "d")
    expect(tab.page.locator("#divider")).to_be_hidden()
    expect(tab.page.locator("#surface")).to_be_focused()


def test_the_original_is_not_shown_for_ever_though_its_key_is_let_go_in_another_window(tab: Tab) -> None:
    tab.open(PICTURES / "dress.jpg").collect()
    tab.drag(((100, 150), (140, 150)))
    mask, shown = tab.page.locator("#layer-mask"), "canvas => canvas.toDataURL()"
    painted = mask.evaluate(shown)
    tab.page.keyboard.down("c")
    tab.page.wait_for_timeout(200)
    assert mask.evaluate(shown) != painted
    tab.page.evaluate("dispatchEvent(new Event('blur'))")
    tab.page.wait_for_timeout(200)
    assert mask.evaluate(shown) == painted
