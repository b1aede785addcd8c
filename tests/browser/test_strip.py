"""Several photographs: one mask for all, and one ZIP of the results."""

from __future__ import annotations

import io
import zipfile

import numpy as np
from PIL import Image
from playwright.sync_api import Dialog, expect

from tests.browser.conftest import Serve, Tab
from tests.browser.desk import PICTURES, Desk, encoded, noise
from tests.browser.test_gallery import REFUSED

COUNT = 20
SLOW = """
    const real = createImageBitmap;
    globalThis.createImageBitmap = (...given) => {
      globalThis.createImageBitmap = real;
      return new Promise((go) => (globalThis.go = go)).then(() => real(...given));
    };
    0"""
"""Makes the next photograph slow to decode: until `go` is called."""
LINE = ((100, 150), (140, 150))
OTHER_LINE = ((60, 60), (80, 60))


def test_twenty_photographs_are_filled_under_one_mask_and_saved_as_one_file(desk: Desk) -> None:
    sizes = [(160 + 8 * (i % 3), 120) for i in range(COUNT)]
    pictures = [noise(width, height, seed=i) for i, (width, height) in enumerate(sizes)]
    desk.open(*(encoded(pixels, "same name.png") for pixels in pictures)).collect()
    desk.brush(20)
    desk.drag(((60, 60), (100, 60)))
    desk.page.click("#mask-for-all")
    expect(desk.page.locator("#status")).to_contain_text(f"{COUNT} photographs are filled", timeout=300_000)
    with desk.page.expect_download(timeout=120_000) as info:
        desk.page.click("#zip")
    with zipfile.ZipFile(info.value.path()) as packed:
        assert packed.testzip() is None
        assert len(set(packed.namelist())) == COUNT
        results = [np.asarray(Image.open(io.BytesIO(packed.read(name)))) for name in packed.namelist()]
    for before, after in zip(pictures, results, strict=True):
        changed = (before != after).any(axis=2)
        assert changed[52:68, 60:95].mean() > 0.9
        assert not changed[:40].any()
        assert not changed[80:].any()


def test_each_photograph_keeps_its_own_work_and_can_be_closed(desk: Desk) -> None:
    desk.open(*(encoded(noise(200, 200, seed=i), f"{i}.png") for i in range(3))).collect()
    desk.drag(((60, 60), (100, 60)))
    mask = desk.mask()
    desk.page.keyboard.press("PageDown")
    expect(desk.page.locator("#surface")).to_have_attribute("aria-label", "Picture 1.png, 200 by 200 pixels")
    assert desk.page.locator("#undo").is_disabled()
    desk.page.click('#strip button[aria-label="0.png"]')
    expect(desk.page.locator("#undo")).to_be_enabled()
    assert (desk.mask() == mask).all()
    asked: list[str] = []

    def answer(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.accept() if len(asked) == 2 else dialog.dismiss()

    desk.page.on("dialog", answer)
    desk.page.click('#strip button[aria-label="Close 0.png"]')
    expect(desk.page.locator("#strip li")).to_have_count(3)
    desk.page.click('#strip button[aria-label="Close 0.png"]')
    expect(desk.page.locator("#surface")).to_have_attribute("aria-label", "Picture 1.png, 200 by 200 pixels")
    desk.page.click('#strip button[aria-label="Close 1.png"]')
    expect(desk.page.locator("#strip")).to_be_hidden()
    assert asked == ["Close 0.png? What was painted and filled on it is lost."] * 2


def test_a_narrow_photograph_is_chosen_beside_its_button_that_closes(desk: Desk) -> None:
    desk.open(*(encoded(noise(width, 400, seed=width), f"{width}.png") for width in (3, 4, 400)))
    boxes = [button.bounding_box() for button in desk.page.locator("#strip li > button").all()]
    assert min(box["width"] for box in boxes[::2]) >= 44
    for chosen, close in zip(boxes[::2], boxes[1::2], strict=True):
        assert chosen["x"] <= close["x"]
        assert close["x"] + close["width"] <= chosen["x"] + chosen["width"] + 1
    desk.page.click('#strip button[aria-label="4.png"]')
    expect(desk.page.locator("#surface")).to_have_attribute("aria-label", "Picture 4.png, 4 by 400 pixels")


def test_the_strip_is_used_with_the_keyboard_alone(desk: Desk) -> None:
    desk.open(*(encoded(noise(200, 200, seed=i), f"{i}.png") for i in range(3))).collect()
    desk.page.focus('#strip button[aria-label="1.png"]')
    desk.page.keyboard.press("Enter")
    surface = desk.page.locator("#surface")
    expect(surface).to_have_attribute("aria-label", "Picture 1.png, 200 by 200 pixels")
    expect(surface).to_be_focused()
    for key in ("b", "Enter", "ArrowRight", "PageUp"):  # the next picture is not painted with a brush that is down
        desk.page.keyboard.press(key)
    expect(surface).to_have_attribute("aria-label", "Picture 0.png, 200 by 200 pixels")
    expect(desk.page.locator("#undo")).to_be_disabled()
    desk.page.keyboard.press("PageDown")
    expect(desk.page.locator("#undo")).to_be_enabled()
    desk.page.focus("#mask-for-all")
    desk.page.keyboard.press("Enter")
    desk.says("3 photographs are filled")
    desk.page.focus("#zip")
    with desk.page.expect_download(timeout=60_000):
        desk.page.keyboard.press("Enter")
    desk.page.focus('#strip button[aria-label="Close 2.png"]')
    desk.page.on("dialog", lambda dialog: dialog.accept())
    desk.page.keyboard.press("Enter")
    expect(desk.page.locator("#strip li")).to_have_count(2)
    expect(surface).to_be_focused()


def test_the_photograph_that_the_keys_go_to_is_read_out(desk: Desk) -> None:
    desk.open(*(encoded(noise(200, 200, seed=i), f"{i}.png") for i in range(3)))
    for key, said in (("PageDown", "1.png, 2 of 3."), ("PageDown", "2.png, 3 of 3."), ("PageUp", "1.png, 2 of 3.")):
        desk.page.keyboard.press(key)
        expect(desk.page.locator("#status")).to_have_text(said)
    expect(desk.page.locator("#status")).to_have_class("unseen")


def test_the_photograph_that_was_chosen_last_is_shown_however_slow_another_one_is(desk: Desk) -> None:
    desk.open(*(encoded(noise(200, 200, seed=i), f"{i}.png") for i in range(4)))
    surface = desk.page.locator("#surface")
    desk.page.evaluate(SLOW)
    desk.page.click('#strip button[aria-label="1.png"]')
    desk.page.click('#strip button[aria-label="2.png"]')
    expect(surface).to_have_attribute("aria-label", "Picture 2.png, 200 by 200 pixels")
    desk.page.evaluate("go(); new Promise((done) => setTimeout(done, 500))")
    expect(surface).to_have_attribute("aria-label", "Picture 2.png, 200 by 200 pixels")
    desk.page.evaluate(SLOW)
    desk.page.click('#strip button[aria-label="1.png"]')
    desk.page.click('#strip button[aria-label="Close 1.png"]')
    desk.page.evaluate("go(); new Promise((done) => setTimeout(done, 500))")
    expect(surface).to_have_attribute("aria-label", "Picture 2.png, 200 by 200 pixels")
    desk.page.evaluate(SLOW)
    desk.page.keyboard.press("PageUp")
    expect(desk.page.locator("#strip li")).to_have_count(3)
    desk.page.keyboard.press("PageDown")  # back, before the other one is there
    desk.page.evaluate("go(); new Promise((done) => setTimeout(done, 500))")
    expect(surface).to_have_attribute("aria-label", "Picture 2.png, 200 by 200 pixels")


def test_a_stroke_on_another_photograph_is_filled_after_the_fill_in_progress(tab: Tab, serve: Serve) -> None:
    desk = tab(f"{serve(fake_batch_ms=1500).url}/").open(PICTURES / "dress.jpg", PICTURES / "skirt.jpg")
    desk.drag(LINE)
    expect(desk.page.locator("#busy")).to_be_visible()
    _show_next(desk)
    desk.drag(OTHER_LINE)
    assert desk.page.locator("#busy").is_visible(), "the first fill came before the second stroke"
    assert desk.page.locator("#fill").is_enabled()
    expect(desk.page.locator("#fill")).to_be_disabled(timeout=30_000)


def test_a_stroke_painted_while_all_are_filled_is_filled_after_them(tab: Tab, serve: Serve) -> None:
    desk = tab(f"{serve(fake_batch_ms=1500).url}/").open(PICTURES / "dress.jpg", PICTURES / "skirt.jpg").collect()
    desk.drag(LINE)
    desk.page.check("#instant")
    desk.page.click("#mask-for-all")
    expect(desk.page.locator("#busy-text")).to_contain_text("Filling 2 of 2", timeout=30_000)
    desk.drag(OTHER_LINE)
    expect(desk.page.locator("#busy-text")).to_contain_text("Filling…", timeout=30_000)
    expect(desk.page.locator("#fill")).to_be_disabled(timeout=30_000)


def test_undoing_on_one_photograph_leaves_the_fill_of_another_alone(tab: Tab, serve: Serve) -> None:
    desk = tab(f"{serve(fake_batch_ms=2000).url}/").open(PICTURES / "dress.jpg", PICTURES / "skirt.jpg").collect()
    _show_next(desk)
    desk.drag(OTHER_LINE)
    desk.page.keyboard.press("PageUp")
    expect(desk.page.locator("#undo")).to_be_disabled()
    desk.drag(LINE)
    desk.page.click("#fill")
    _show_next(desk)
    desk.page.click("#undo")
    assert desk.page.locator("#busy").is_visible(), "the fill was cancelled, or over before"
    desk.filled()


def test_a_photograph_that_is_closed_ends_the_wait_for_its_fill(tab: Tab, serve: Serve) -> None:
    desk = tab(f"{serve().url}/", expected="ERR_").open(PICTURES / "dress.jpg", PICTURES / "skirt.jpg").collect()
    desk.page.route("**/v1/inpaint", lambda route: route.abort())
    desk.drag(LINE)
    desk.page.click("#fill")
    expect(desk.page.locator("#busy-text")).to_contain_text("cannot be reached: again in", timeout=30_000)
    _close(desk, "dress.jpg")
    desk.says("Cancelled")
    expect(desk.page.locator("#busy")).to_be_hidden()


def test_a_photograph_that_is_closed_while_all_wait_lets_the_others_be_filled(tab: Tab, serve: Serve) -> None:
    desk = tab(f"{serve().url}/", expected=REFUSED).open(PICTURES / "dress.jpg", PICTURES / "skirt.jpg").collect()
    busy = {"status": 503, "headers": {"Retry-After": "600"}, "content_type": "application/problem+json", "body": "{}"}
    desk.page.route("**/v1/inpaint", lambda route: route.fulfill(**busy), times=1)
    desk.drag(LINE)
    desk.page.click("#mask-for-all")
    expect(desk.page.locator("#busy-text")).to_contain_text("busy: again in", timeout=30_000)
    _close(desk, "dress.jpg")
    desk.says("1 photograph is filled")
    expect(desk.page.locator("#busy")).to_be_hidden()
    expect(desk.page.locator("#undo")).to_be_enabled()


def _close(desk: Desk, name: str) -> None:
    desk.page.on("dialog", lambda dialog: dialog.accept())
    desk.page.click(f'#strip button[aria-label="Close {name}"]')


def _show_next(desk: Desk) -> None:
    before = desk.page.get_attribute("#surface", "aria-label")
    desk.page.keyboard.press("PageDown")
    expect(desk.page.locator("#surface")).not_to_have_attribute("aria-label", before or "")
