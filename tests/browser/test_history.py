"""One history over strokes and fills."""

from __future__ import annotations

import numpy as np

from tests.browser.conftest import Tab
from tests.browser.desk import PICTURES, Desk, encoded, noise


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


def test_what_was_undone_cannot_be_redone_after_a_new_stroke(tab: Tab, url: str) -> None:
    desk = tab(url).open(encoded(noise(300, 300), "noise.png")).collect()
    desk.drag(((50, 50), (90, 50)))
    desk.page.keyboard.press("Control+z")
    desk.drag(((50, 150), (90, 150)))
    assert desk.page.locator("#redo").is_disabled()
