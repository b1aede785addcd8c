"""Several photographs: one mask for all, and one ZIP of the results."""

from __future__ import annotations

import io
import zipfile

import numpy as np
from PIL import Image
from playwright.sync_api import Dialog, expect

from tests.browser.conftest import OpenTab, Serve
from tests.browser.tab import PICTURES, Tab, encoded, noise
from tests.browser.test_gallery import REFUSED
from tests.browser.test_recovery import KEPT_AFTER_MS

COUNT = 20
SLOW = """const real = createImageBitmap;
    globalThis.createImageBitmap = (...given) => {
      globalThis.createImageBitmap = real;
      return new Promise((go) => (globalThis.go = go)).then(() => real(...given));
    }; 0"""
"""Script that holds the decoding of the next photograph until `go` is called."""
LINE = ((100, 150), (140, 150))
OTHER_LINE = ((60, 60), (80, 60))


def test_twenty_photographs_are_filled_under_one_mask_and_saved_as_one_file(tab: Tab) -> None:
    pictures = [noise(160 + 8 * (i % 3), 120, seed=i) for i in range(COUNT)]
    tab.open(*(encoded(pixels, "same name.png") for pixels in pictures)).collect()
    tab.brush(20)
    tab.drag(((60, 60), (100, 60)))
    tab.page.click("#mask-for-all")
    expect(tab.page.locator("#status")).to_contain_text(f"{COUNT} photographs are filled", timeout=300_000)
    with tab.page.expect_download(timeout=120_000) as info:
        tab.page.click("#zip")
    with zipfile.ZipFile(info.value.path()) as packed:
        assert packed.testzip() is None
        assert len(set(packed.namelist())) == COUNT
        results = [np.asarray(Image.open(io.BytesIO(packed.read(name)))) for name in packed.namelist()]
    for before, after in zip(pictures, results, strict=True):
        changed = (before != after).any(axis=2)
        assert changed[52:68, 60:95].mean() > 0.9
        assert not changed[:40].any()
        assert not changed[80:].any()


def test_each_photograph_keeps_its_own_work_and_can_be_closed(tab: Tab) -> None:
    tab.open(*(encoded(noise(200, 200, seed=i), f"{i}.png") for i in range(3))).collect()
    tab.drag(((60, 60), (100, 60)))
    mask = tab.mask()
    tab.page.keyboard.press("PageDown")
    expect(tab.page.locator("#surface")).to_have_attribute("aria-label", "Picture 1.png, 200 by 200 pixels")
    assert tab.page.locator("#undo").is_disabled()
    tab.page.click('#strip button[aria-label="0.png"]')
    expect(tab.page.locator("#undo")).to_be_enabled()
    assert (tab.mask() == mask).all()
    asked: list[str] = []

    def answer(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.accept() if len(asked) == 2 else dialog.dismiss()

    tab.page.on("dialog", answer)
    tab.page.click('#strip button[aria-label="Close 0.png"]')
    expect(tab.page.locator("#strip li")).to_have_count(3)
    tab.page.click('#strip button[aria-label="Close 0.png"]')
    expect(tab.page.locator("#surface")).to_have_attribute("aria-label", "Picture 1.png, 200 by 200 pixels")
    tab.page.click('#strip button[aria-label="Close 1.png"]')
    expect(tab.page.locator("#strip")).to_be_hidden()
    assert asked == ["Close 0.png? Your painting and fills on it will be lost."] * 2


def test_why_photographs_were_not_filled_under_one_mask_is_said_with_their_names(tab: Tab) -> None:
    tab.open(encoded(noise(40, 40), "0.png"), encoded(noise(40, 40), "1.png")).page.click("#mask-for-all")
    tab.says("Paint a mask first, without Fill each stroke: it will be used for all photographs.")
    tab.choose("mask-menu", "[data-mask=invert]")
    tab.page.click("#mask-for-all")
    tab.says("2 failed. 0.png and 1.png: The whole picture is painted")


def test_a_single_photograph_is_closed_after_a_question_if_work_would_be_lost(blank: Tab) -> None:
    close = blank.page.locator("#close")
    blank.drag(((80, 80), (160, 80)))
    asked: list[str] = []

    def answer(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.accept() if len(asked) == 2 else dialog.dismiss()

    blank.page.on("dialog", answer)
    close.click()
    expect(blank.page.locator("#empty")).to_be_hidden()
    blank.page.keyboard.press("d")
    close.focus()
    blank.page.keyboard.press("Enter")
    expect(blank.page.locator("#empty")).to_be_visible()
    expect(blank.page.locator("#divider")).to_be_hidden()
    assert asked == ["Close noise.png? Your painting and fills on it will be lost."] * 2
    expect(blank.page.locator("#open-first")).to_be_focused()
    for button in ("#close", "#undo", "#fill"):
        expect(blank.page.locator(button)).to_be_disabled()
    blank.page.wait_for_timeout(KEPT_AFTER_MS)
    blank.go()
    assert blank.page.locator("#empty").is_visible(), "it was stored after it was closed"
    blank.open(PICTURES / "dress.jpg")
    close.click()  # without a question
    expect(blank.page.locator("#empty")).to_be_visible()


def test_a_narrow_photograph_is_chosen_beside_its_button_that_closes(tab: Tab) -> None:
    tab.open(*(encoded(noise(width, 400, seed=width), f"{width}.png") for width in (3, 4, 400)))
    boxes = [button.bounding_box() for button in tab.page.locator("#strip li > button").all()]
    assert min(box["width"] for box in boxes[::2]) >= 44
    for chosen, close in zip(boxes[::2], boxes[1::2], strict=True):
        assert chosen["x"] <= close["x"]
        assert close["x"] + close["width"] <= chosen["x"] + chosen["width"] + 1
    tab.page.click('#strip button[aria-label="4.png"]')
    expect(tab.page.locator("#surface")).to_have_attribute("aria-label", "Picture 4.png, 4 by 400 pixels")


def test_the_strip_is_used_with_the_keyboard_alone(tab: Tab) -> None:
    tab.open(*(encoded(noise(200, 200, seed=i), f"{i}.png") for i in range(3))).collect()
    tab.page.focus('#strip button[aria-label="1.png"]')
    tab.page.keyboard.press("Enter")
    surface = tab.page.locator("#surface")
    expect(surface).to_have_attribute("aria-label", "Picture 1.png, 200 by 200 pixels")
    expect(surface).to_be_focused()
    for key in ("b", "Enter", "ArrowRight", "PageUp"):  # a brush that is down must not paint on the next picture
        tab.page.keyboard.press(key)
    expect(surface).to_have_attribute("aria-label", "Picture 0.png, 200 by 200 pixels")
    expect(tab.page.locator("#undo")).to_be_disabled()
    tab.page.keyboard.press("PageDown")
    expect(tab.page.locator("#undo")).to_be_enabled()
    tab.page.focus("#mask-for-all")
    tab.page.keyboard.press("Enter")
    tab.says("3 photographs are filled")
    tab.page.focus("#zip")
    with tab.page.expect_download(timeout=60_000):
        tab.page.keyboard.press("Enter")
    tab.page.focus('#strip button[aria-label="Close 2.png"]')
    tab.page.on("dialog", lambda dialog: dialog.accept())
    tab.page.keyboard.press("Enter")
    expect(tab.page.locator("#strip li")).to_have_count(2)
    expect(surface).to_be_focused()


def test_the_photograph_that_the_keys_go_to_or_that_is_closed_is_read_out(tab: Tab) -> None:
    tab.open(*(encoded(noise(200, 200, seed=i), f"{i}.png") for i in range(3)))
    for key, said in (("PageDown", "1.png, 2 of 3."), ("PageDown", "2.png, 3 of 3."), ("PageUp", "1.png, 2 of 3.")):
        tab.page.keyboard.press(key)
        expect(tab.page.locator("#status")).to_have_text(said)
    tab.page.click("#close")
    expect(tab.page.locator("#status.unseen")).to_have_text("1.png is closed.")


def test_the_ring_around_the_focus_is_whole_in_the_strip_and_in_menus(open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url, color_scheme="light").open(PICTURES / "dress.jpg", PICTURES / "skirt.jpg")
    for before, keys in {"#surface": ("Tab", "Tab"), "#fill": ("Tab", "Enter", "Tab")}.items():
        tab.page.focus(before)
        for key in keys:
            tab.page.keyboard.press(key)
        tab.page.wait_for_timeout(200)
        focused = tab.page.locator(":focus")
        box, offset = focused.bounding_box(), int(focused.evaluate("e => parseInt(getComputedStyle(e).outlineOffset)"))
        out, edge = offset + 3, max(offset, 0) + 4
        shot = tab.page.screenshot(
            clip={"x": box["x"] - edge, "y": box["y"] - edge, "width": box["width"] + 2 * edge}
            | {"height": box["height"] + 2 * edge}
        )
        seen = np.asarray(Image.open(io.BytesIO(shot)).convert("RGB")).astype(int)
        blue = (np.abs(seen - (59, 91, 219)) < 12).all(axis=2)
        middle, at = np.array(blue.shape) // 2, edge - out + 1
        sides = [blue[at, middle[1]], blue[-1 - at, middle[1]], blue[middle[0], at], blue[middle[0], -1 - at]]
        assert all(sides), (before, sides)


def test_the_photograph_that_was_chosen_last_is_shown_however_slow_another_one_is(tab: Tab) -> None:
    tab.open(*(encoded(noise(200, 200, seed=i), f"{i}.png") for i in range(4)))
    surface = tab.page.locator("#surface")
    tab.page.evaluate(SLOW)
    tab.page.click('#strip button[aria-label="1.png"]')
    tab.page.click('#strip button[aria-label="2.png"]')
    expect(surface).to_have_attribute("aria-label", "Picture 2.png, 200 by 200 pixels")
    tab.page.evaluate("go(); new Promise((done) => setTimeout(done, 500))")
    expect(surface).to_have_attribute("aria-label", "Picture 2.png, 200 by 200 pixels")
    tab.page.evaluate(SLOW)
    tab.page.click('#strip button[aria-label="1.png"]')
    tab.page.click('#strip button[aria-label="Close 1.png"]')
    tab.page.evaluate("go(); new Promise((done) => setTimeout(done, 500))")
    expect(surface).to_have_attribute("aria-label", "Picture 2.png, 200 by 200 pixels")
    tab.page.evaluate(SLOW)
    tab.page.keyboard.press("PageUp")
    expect(tab.page.locator("#strip li")).to_have_count(3)
    tab.page.keyboard.press("PageDown")  # back, before the other picture has loaded
    tab.page.evaluate("go(); new Promise((done) => setTimeout(done, 500))")
    expect(surface).to_have_attribute("aria-label", "Picture 2.png, 200 by 200 pixels")


def test_a_stroke_on_another_photograph_is_filled_after_the_fill_in_progress(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve(fake_batch_ms=1500).url}/").open(PICTURES / "dress.jpg", PICTURES / "skirt.jpg")
    tab.drag(LINE)
    expect(tab.page.locator("#busy")).to_be_visible()
    _show_next(tab)
    tab.drag(OTHER_LINE)
    assert tab.page.locator("#busy").is_visible(), "the first fill came before the second stroke"
    assert tab.page.locator("#fill").is_enabled()
    expect(tab.page.locator("#fill")).to_be_disabled(timeout=30_000)


def test_a_stroke_painted_while_all_are_filled_is_filled_after_them(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve(fake_batch_ms=1500).url}/").open(PICTURES / "dress.jpg", PICTURES / "skirt.jpg").collect()
    tab.drag(LINE)
    tab.page.check("#instant")
    tab.page.click("#mask-for-all")
    expect(tab.page.locator("#busy-text")).to_contain_text("Filling 2 of 2", timeout=30_000)
    tab.drag(OTHER_LINE)
    expect(tab.page.locator("#busy-text")).to_contain_text("Filling…", timeout=30_000)
    expect(tab.page.locator("#fill")).to_be_disabled(timeout=30_000)


def test_undoing_on_one_photograph_leaves_the_fill_of_another_alone(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve(fake_batch_ms=2000).url}/").open(PICTURES / "dress.jpg", PICTURES / "skirt.jpg").collect()
    _show_next(tab)
    tab.drag(OTHER_LINE)
    tab.page.keyboard.press("PageUp")
    expect(tab.page.locator("#undo")).to_be_disabled()
    tab.drag(LINE)
    tab.page.click("#fill")
    _show_next(tab)
    tab.page.click("#undo")
    assert tab.page.locator("#busy").is_visible(), "the fill was cancelled, or over before"
    tab.filled()


def test_a_photograph_that_is_closed_ends_the_wait_for_its_fill(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve().url}/", expected="ERR_").open(PICTURES / "dress.jpg", PICTURES / "skirt.jpg").collect()
    tab.page.route("**/v1/inpaint", lambda route: route.abort())
    tab.drag(LINE)
    tab.page.click("#fill")
    expect(tab.page.locator("#busy-text")).to_contain_text("cannot be reached: trying again in", timeout=30_000)
    _close(tab, "dress.jpg")
    tab.says("Cancelled")
    expect(tab.page.locator("#busy")).to_be_hidden()


def test_a_photograph_that_is_closed_while_all_wait_lets_the_others_be_filled(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve().url}/", expected=REFUSED).open(PICTURES / "dress.jpg", PICTURES / "skirt.jpg").collect()
    busy = {"status": 503, "headers": {"Retry-After": "600"}, "content_type": "application/problem+json", "body": "{}"}
    tab.page.route("**/v1/inpaint", lambda route: route.fulfill(**busy), times=1)
    tab.drag(LINE)
    tab.page.click("#mask-for-all")
    expect(tab.page.locator("#busy-text")).to_contain_text("busy: trying again in", timeout=30_000)
    _close(tab, "dress.jpg")
    tab.says("1 photograph is filled")
    expect(tab.page.locator("#busy")).to_be_hidden()
    expect(tab.page.locator("#undo")).to_be_enabled()


def test_all_photographs_get_one_fill_each_as_nobody_chooses_among_variants(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve().url}/").open(PICTURES / "dress.jpg", PICTURES / "skirt.jpg").collect()
    replies: list[str] = []
    tab.page.on("response", lambda reply: "/v1/inpaint" in reply.url and replies.append(reply.headers["content-type"]))
    tab.page.select_option("#samples", "4")
    tab.drag(LINE)
    tab.page.click("#mask-for-all")
    tab.says("2 photographs are filled")
    assert replies == ["image/png"] * 2


def test_variants_of_a_photograph_that_was_left_are_offered_when_it_is_shown_again(
    open_tab: OpenTab, serve: Serve
) -> None:
    server = serve(fake_batch_ms=1000)
    tab = open_tab(f"{server.url}/").open(PICTURES / "dress.jpg", PICTURES / "skirt.jpg").collect()
    tab.page.select_option("#samples", "2")
    tab.drag(LINE)
    tab.page.click("#fill")
    _show_next(tab)
    tab.says("Filled. dress.jpg has 2 variants to choose from.")
    variants = tab.page.locator("#variants")
    expect(variants).to_be_hidden()
    tab.drag(OTHER_LINE)
    tab.page.keyboard.press("PageUp")
    second = variants.get_by_label("Variant 2")
    second.click()
    expect(second).to_have_attribute("aria-pressed", "true")
    tab.drag(LINE)
    expect(variants).to_be_hidden()


def _close(tab: Tab, name: str) -> None:
    tab.page.on("dialog", lambda dialog: dialog.accept())
    tab.page.click(f'#strip button[aria-label="Close {name}"]')


def _show_next(tab: Tab) -> None:
    before = tab.page.get_attribute("#surface", "aria-label")
    tab.page.keyboard.press("PageDown")
    expect(tab.page.locator("#surface")).not_to_have_attribute("aria-label", before or "")
