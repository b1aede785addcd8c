"""The way back: by undo and redo, to the original, and after a reload; nothing is kept that was to be forgotten."""

from __future__ import annotations

import numpy as np
from playwright.sync_api import expect

from tests.browser.conftest import Serve, Tab
from tests.browser.desk import PICTURES, Desk, encoded, noise
from tests.browser.test_filling import STORED_WORK

KEPT_AFTER_MS = 1500
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


def test_a_reload_brings_photographs_masks_and_fills_back(desk: Desk) -> None:
    desk.open(PICTURES / "dress.jpg", PICTURES / "skirt.jpg").collect()
    desk.drag(((100, 150), (140, 150)))
    desk.fill()
    filled = np.asarray(desk.saved())
    desk.drag(((60, 60), (90, 60)))
    mask = desk.mask()
    desk.page.wait_for_timeout(KEPT_AFTER_MS)
    desk.go()
    desk.says("Your work is back")
    expect(desk.page.locator("#strip li")).to_have_count(2)
    assert (desk.mask() == mask).all()
    assert (np.asarray(desk.saved()) == filled).all()
    for _ in range(2):
        desk.page.keyboard.press("Control+z")
    assert (np.asarray(desk.saved()) != filled).any(), "a fill cannot be undone after a reload"


def test_a_reload_during_a_fill_keeps_its_mask(tab: Tab, serve: Serve) -> None:
    desk = tab(f"{serve(fake_batch_ms=2500).url}/").open(PICTURES / "dress.jpg")
    desk.drag(((100, 150), (140, 150)))
    expect(desk.page.locator("#busy")).to_be_visible()
    desk.page.wait_for_timeout(KEPT_AFTER_MS / 2)
    desk.go()
    desk.says("Your work is back")
    assert desk.mask()[150, 100:140].all()


def test_one_button_forgets_everything(desk: Desk) -> None:
    desk.open(PICTURES / "dress.jpg").collect()
    desk.drag(((100, 150), (140, 150)))
    desk.page.wait_for_timeout(KEPT_AFTER_MS)
    desk.choose("save-menu", "#forget")
    desk.says("Forgotten")
    desk.go()
    expect(desk.page.locator("#empty")).to_be_visible()


def test_what_is_older_than_a_week_is_removed(desk: Desk) -> None:
    desk.open(PICTURES / "dress.jpg").collect()
    desk.drag(((100, 150), (140, 150)))
    desk.page.wait_for_timeout(KEPT_AFTER_MS)
    desk.page.evaluate(AGED)
    desk.go()
    expect(desk.page.locator("#empty")).to_be_visible()
    assert desk.page.evaluate(STORED_WORK) == "[]"


def test_a_second_tab_neither_takes_nor_overwrites_the_first_ones_work(desk: Desk, url: str) -> None:
    desk.open(PICTURES / "dress.jpg").collect()
    desk.drag(((100, 150), (140, 150)))
    desk.page.wait_for_timeout(KEPT_AFTER_MS)
    second = Desk(desk.page.context.new_page(), url).go()
    expect(second.page.locator("#empty")).to_be_visible()
    second.says("Retouch is open in another tab")
    second.open(PICTURES / "skirt.jpg").collect()
    second.drag(((60, 60), (90, 60)))
    second.page.wait_for_timeout(KEPT_AFTER_MS)
    with second.page.expect_event("dialog") as asked:
        second.page.close(run_before_unload=True)
    assert asked.value.type == "beforeunload"
    asked.value.accept()
    desk.go()
    assert "dress.jpg" in (desk.page.get_attribute("#surface", "aria-label") or "")


def test_what_one_tab_forgets_no_other_tab_writes_again(desk: Desk, url: str) -> None:
    desk.open(PICTURES / "dress.jpg").collect()
    desk.drag(((100, 150), (140, 150)))
    desk.fill()
    desk.page.wait_for_timeout(KEPT_AFTER_MS)
    second = Desk(desk.page.context.new_page(), url).go()
    second.open(PICTURES / "skirt.jpg")
    second.choose("save-menu", "#forget")
    desk.says("Forgotten")
    desk.drag(((60, 60), (90, 60)))
    desk.page.wait_for_timeout(KEPT_AFTER_MS)
    assert desk.page.evaluate(STORED_WORK) == "[]"


def test_a_hundred_strokes_are_undone_and_done_again(tab: Tab, url: str) -> None:
    desk = tab(url).open(encoded(noise(300, 300), "noise.png")).collect()
    desk.brush(10)
    for i in range(100):
        x, y = 15 + (i % 10) * 28, 15 + (i // 10) * 28
        desk.drag(((x, y), (x + 8, y)))
    whole = desk.mask()
    for _ in range(100):
        desk.page.keyboard.press("Control+z")
    assert desk.page.locator("#undo").is_disabled()
    assert desk.page.locator("#fill").is_disabled(), "something is still painted"
    for _ in range(100):
        desk.page.keyboard.press("Control+Shift+z")
    assert (desk.mask() == whole).all()
    assert desk.page.locator("#redo").is_disabled()


def test_strokes_and_fills_are_undone_in_the_order_they_were_done(desk: Desk) -> None:
    desk.open(PICTURES / "dress.jpg").collect()
    before = np.asarray(desk.saved())
    desk.drag(((100, 150), (140, 150)))
    stroke = desk.mask()
    desk.fill()
    filled = np.asarray(desk.saved())
    assert (filled != before).any()
    desk.drag(((60, 60), (80, 60)))
    desk.page.click("#undo")  # the second stroke
    assert desk.page.locator("#fill").is_disabled()
    assert (np.asarray(desk.saved()) == filled).all()
    desk.page.click("#undo")  # the fill: its mask is back
    assert (desk.mask() == stroke).all()
    assert (np.asarray(desk.saved()) == before).all()
    desk.page.click("#redo")
    assert (np.asarray(desk.saved()) == filled).all()


def test_a_stroke_that_was_filled_when_let_go_is_one_step(desk: Desk) -> None:
    desk.open(PICTURES / "dress.jpg")
    desk.drag(((100, 150), (140, 150)))
    desk.filled()
    desk.page.keyboard.press("Control+z")
    desk.says("Undone")
    assert desk.page.locator("#undo").is_disabled()
    assert desk.page.locator("#fill").is_disabled()


def test_a_stroke_that_is_undone_before_it_is_let_go_is_cancelled(desk: Desk) -> None:
    desk.open(PICTURES / "dress.jpg")
    desk.page.mouse.move(*desk.on_screen((100, 150)))
    desk.page.mouse.down()
    desk.page.mouse.move(*desk.on_screen((140, 150)))
    desk.page.keyboard.press("Control+z")
    desk.page.mouse.up()
    desk.says("Cancelled.")


def test_what_was_undone_cannot_be_redone_after_a_new_stroke(tab: Tab, url: str) -> None:
    desk = tab(url).open(encoded(noise(300, 300), "noise.png")).collect()
    desk.drag(((50, 50), (90, 50)))
    desk.page.keyboard.press("Control+z")
    desk.drag(((50, 150), (90, 150)))
    assert desk.page.locator("#redo").is_disabled()


def test_the_divider_and_the_held_button_show_the_original(desk: Desk) -> None:
    desk.open(PICTURES / "dress.jpg").collect()
    stage = desk.page.locator("#layer-picture")
    shown = "canvas => canvas.toDataURL()"
    before = stage.evaluate(shown)
    desk.drag(((100, 150), (140, 150)))
    desk.fill()
    after = stage.evaluate(shown)
    assert after != before
    desk.page.hover("#peek")
    desk.page.mouse.down()
    canvas = stage.element_handle()
    desk.page.wait_for_function("([canvas, before]) => canvas.toDataURL() === before", arg=[canvas, before])
    desk.page.mouse.up()
    desk.page.click("#compare")
    desk.page.drag_and_drop("#divider span", "#save-menu summary", force=True)
    desk.page.wait_for_timeout(200)
    box = desk.page.locator("#divider").bounding_box()
    assert box["x"] > 1200
    assert stage.evaluate(shown) == before
    desk.page.press("#divider", "d")
    expect(desk.page.locator("#divider")).to_be_hidden()
    expect(desk.page.locator("#surface")).to_be_focused()


def test_the_original_is_not_shown_for_ever_though_its_key_is_let_go_in_another_window(desk: Desk) -> None:
    desk.open(PICTURES / "dress.jpg").collect()
    desk.drag(((100, 150), (140, 150)))
    mask, shown = desk.page.locator("#layer-mask"), "canvas => canvas.toDataURL()"
    painted = mask.evaluate(shown)
    desk.page.keyboard.down("c")
    desk.page.wait_for_timeout(200)
    assert mask.evaluate(shown) != painted
    desk.page.evaluate("dispatchEvent(new Event('blur'))")
    desk.page.wait_for_timeout(200)
    assert mask.evaluate(shown) == painted
