"""A reload in the middle of the work loses nothing, and nothing is kept that was to be forgotten."""

from __future__ import annotations

import numpy as np
from playwright.sync_api import expect

from tests.browser.conftest import Serve, Tab
from tests.browser.desk import PICTURES, Desk
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
