"""Fills: when they are computed, and their pixels."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import expect

from tests.browser.conftest import ROOT, OpenTab, Serve
from tests.browser.tab import PICTURES, Tab, encoded, noise
from tests.browser.test_gallery import REFUSED, new_key
from tests.serving.waiting import wait_until

LINE = ((100, 150), (140, 150))
STORED_WORK = """async () => {
    const open = indexedDB.open("retouch");
    const database = await new Promise(resolve => { open.onsuccess = () => resolve(open.result); });
    const all = [];
    for (const name of database.objectStoreNames) {
        const read = database.transaction(name).objectStore(name).getAll();
        all.push(...await new Promise(resolve => { read.onsuccess = () => resolve(read.result); }));
    }
    return JSON.stringify(all);
}"""

NOTE_WHAT_IS_SENT = """() => {
    const append = FormData.prototype.append;
    FormData.prototype.append = function (name, value, ...rest) {
        if (name === "image") globalThis.sentImage = value;
        append.call(this, name, value, ...rest);
    };
}"""
SIZE_THAT_WAS_SENT = """async () => {
    const { width, height } = await createImageBitmap(sentImage);
    return [width, height];
}"""


def test_a_fill_equals_that_of_the_api(tab: Tab, url: str) -> None:
    tab.open(PICTURES / "dress.jpg").collect()
    tab.drag(LINE)
    mask = tab.mask()
    tab.fill()
    buffer = io.BytesIO()
    Image.fromarray(mask.astype(np.uint8) * 255).save(buffer, "PNG")
    files = {"image": (PICTURES / "dress.jpg").read_bytes(), "mask": buffer.getvalue()}
    texture = {"texture": "copied"} if tab.page.locator("#texture").is_visible() else {}
    reply = httpx.post(f"{url}v1/inpaint", files=files, data=texture, timeout=60)
    expected = np.asarray(Image.open(io.BytesIO(reply.content)))
    assert (np.asarray(tab.saved()) == expected).all()


def test_it_fills_when_the_stroke_is_let_go(tab: Tab) -> None:
    tab.open(PICTURES / "dress.jpg")
    tab.drag(LINE)
    tab.filled()
    assert tab.page.locator("#fill").is_disabled(), "the mask is still there"


def test_texture_is_asked_for_unless_a_person_does_not_want_it(tab: Tab) -> None:
    replies: list[str | None] = []
    tab.page.on(
        "response", lambda reply: replies.append(reply.headers.get("x-texture")) if "inpaint" in reply.url else None
    )
    tab.open(PICTURES / "dress.jpg")
    tab.drag(LINE)
    tab.filled()
    tab.page.uncheck("#texture")
    tab.drag(((60, 60), (80, 60)))
    tab.filled()
    tab.page.reload()
    assert not tab.page.is_checked("#texture")
    assert replies == ["copied", None]


def test_it_collects_strokes_until_it_is_asked(tab: Tab) -> None:
    tab.open(PICTURES / "dress.jpg").collect()
    tab.drag(LINE)
    tab.drag(((60, 60), (80, 60)))
    assert tab.page.locator("#busy").is_hidden()
    tab.page.keyboard.press("f")
    tab.filled()
    tab.go()
    assert not tab.page.is_checked("#instant"), "the mode is not remembered"


def test_strokes_painted_during_a_fill_are_filled_after_it(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve(fake_batch_ms=1500).url}/").open(PICTURES / "dress.jpg")
    tab.drag(LINE)
    expect(tab.page.locator("#busy")).to_be_visible()
    tab.drag(((60, 60), (80, 60)))
    tab.filled()
    expect(tab.page.locator("#fill")).to_be_disabled(timeout=30_000)


def test_strokes_on_another_photograph_are_filled_though_the_fill_before_them_was_cancelled(
    open_tab: OpenTab, serve: Serve
) -> None:
    tab = open_tab(f"{serve(fake_batch_ms=1500).url}/").open(PICTURES / "dress.jpg", PICTURES / "dress_mask.png")
    tab.drag(LINE)
    expect(tab.page.locator("#busy")).to_be_visible()
    tab.drag(((60, 60), (80, 60)))
    tab.page.keyboard.press("PageDown")
    expect(tab.page.locator("#surface")).to_have_attribute("aria-label", re.compile("dress_mask"))
    tab.drag(LINE)
    tab.page.click("#cancel")
    tab.filled()
    assert tab.page.locator("#fill").is_disabled(), "the mask is still there"
    tab.page.keyboard.press("PageUp")
    expect(tab.page.locator("#fill")).to_be_enabled()  # a cancelled fill is not repeated automatically
    assert tab.page.locator("#busy").is_hidden()
    assert tab.mask()[150, 100:140].all()


def test_a_fill_asked_for_during_another_one_comes_after_it(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve(fake_batch_ms=1500).url}/").open(PICTURES / "dress.jpg", PICTURES / "dress_mask.png")
    tab.collect()
    tab.drag(LINE)
    tab.page.click("#fill")
    tab.page.keyboard.press("PageDown")
    expect(tab.page.locator("#surface")).to_have_attribute("aria-label", re.compile("dress_mask"))
    tab.drag(LINE)
    tab.page.click("#fill")
    tab.says("This is filled next.")
    expect(tab.page.locator("#fill")).to_be_disabled(timeout=30_000)
    tab.page.keyboard.press("PageUp")
    expect(tab.page.locator("#fill")).to_be_disabled()


def test_a_stroke_in_progress_when_a_fill_comes_is_kept_whole(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve(fake_batch_ms=500).url}/").open(PICTURES / "dress.jpg").collect()
    tab.drag(LINE)
    with tab.page.expect_response("**/v1/inpaint") as reply:
        tab.page.click("#fill")
        tab.page.mouse.move(*tab.on_screen((60, 60)))
        tab.page.mouse.down()
        tab.page.mouse.move(*tab.on_screen((80, 60)), steps=4)
    reply.value.finished()
    tab.page.wait_for_timeout(500)
    tab.page.mouse.move(*tab.on_screen((120, 60)), steps=4)
    tab.page.mouse.up()
    tab.filled()
    mask = tab.mask()
    assert mask[60, 60:120].all()
    assert not mask[150].any(), "what was filled is still to be filled"
    tab.page.click("#undo")
    tab.page.click("#undo")
    assert (tab.mask()[150, 100:140]).all()
    assert not tab.mask()[60].any()


def test_the_last_mask_is_filled_again_in_another_way_as_one_step(tab: Tab) -> None:
    replies = []
    tab.page.on(
        "response", lambda reply: replies.append(reply.headers.get("x-texture")) if "inpaint" in reply.url else None
    )
    tab.open(PICTURES / "dress.jpg").page.keyboard.press("a")
    tab.says("Nothing has been filled here yet.")
    tab.drag(LINE)
    tab.filled()
    sharper = np.asarray(tab.saved())
    tab.page.uncheck("#texture")
    tab.choose("mask-menu", '[data-mask="again"]')
    tab.filled()
    assert replies == ["copied", None]
    smooth = np.asarray(tab.saved())
    assert (smooth != sharper).any()
    tab.page.keyboard.press("Control+z")
    assert tab.page.locator("#fill").is_disabled()
    assert (np.asarray(tab.saved()) == sharper).all()
    tab.page.keyboard.press("a")
    tab.filled()
    assert (np.asarray(tab.saved()) == smooth).all()


def test_a_fill_that_is_seen_is_read_out_without_words_over_the_picture(tab: Tab) -> None:
    tab.open(PICTURES / "dress.jpg")
    tab.drag(LINE)
    tab.filled()
    expect(tab.page.locator("#status")).to_have_class("unseen")


def test_an_eraser_that_meets_no_mask_says_how_a_fill_is_taken_back(tab: Tab) -> None:
    tab.open(PICTURES / "dress.jpg")
    tab.drag(LINE)
    tab.filled()
    tab.page.keyboard.press("e")
    tab.drag(LINE)
    tab.says("There is no mask to erase here. Use Undo to remove a fill.")


def test_a_model_that_is_gone_is_replaced_by_those_that_are_there(
    open_tab: OpenTab, serve: Serve, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    shutil.copytree(ROOT / "models/photos/5", models / "photos/5")
    tab = open_tab(f"{serve(models_dir=models).url}/", expected=REFUSED).open(PICTURES / "dress.jpg").collect()
    tab.drag(LINE)
    manifest = json.loads((models / "photos/5/manifest.json").read_text())
    shutil.copytree(models / "photos/5", models / "photos/6")
    (models / "photos/6/manifest.json").write_text(json.dumps({**manifest, "version": 6}))
    shutil.rmtree(models / "photos/5")
    wait_until(lambda: [model["version"] for model in httpx.get(f"{tab.url}v1/models").json()["models"]] == [6])
    tab.page.click("#fill")
    tab.says("No model photos/5")
    expect(tab.page.locator("#model")).to_have_value("photos/6")
    tab.fill()


def test_painting_everything_is_answered_with_what_a_person_can_do(tab: Tab) -> None:
    tab.open(PICTURES / "dress.jpg").collect()
    tab.page.keyboard.press("i")
    tab.page.click("#fill")
    tab.says("The whole picture is painted, so there is nothing to fill from: erase part of the mask.")
    assert tab.page.locator("#fill").is_enabled()


def test_a_png_that_the_server_refuses_and_the_browser_shows_is_filled(open_tab: OpenTab, url: str) -> None:
    notes = PngInfo()
    notes.add_text("Comment", "a holiday")
    file = encoded(noise(200, 200), "noise.png", pnginfo=notes)
    file["buffer"] = file["buffer"].replace(b"a holiday", b"a workday")  # the chunk's checksum no longer fits
    tab = open_tab(url, expected=REFUSED)
    painted = tab.paint_and_fill(file, LINE)
    changed = (np.asarray(tab.saved()) != noise(200, 200)).any(axis=2)
    assert changed.any()
    assert not changed[~painted].any()


def test_a_large_picture_is_sent_in_part_and_filled_in_place(tab: Tab) -> None:
    pixels = noise(3000, 2400)
    tab.open(encoded(pixels, "large.png", compress_level=1)).collect()
    tab.page.evaluate(NOTE_WHAT_IS_SENT)
    tab.drag(((1000, 900), (1030, 900)))
    tab.fill()
    width, height = tab.page.evaluate(SIZE_THAT_WAS_SENT)
    assert 70 + 2 * 256 <= width < 1200
    assert 40 + 2 * 256 <= height < 1200
    saved = np.asarray(tab.saved())
    rows, columns = np.nonzero((saved != pixels).any(axis=2))
    assert (rows.mean(), columns.mean()) == pytest.approx((899.5, 1014.5), abs=3)


def test_a_long_stroke_on_a_very_large_picture_is_sent_with_less_around_it(tab: Tab) -> None:
    tab.open(encoded(np.zeros((5000, 5200, 3), np.uint8), "large.png", compress_level=1)).collect()
    tab.page.evaluate(NOTE_WHAT_IS_SENT)
    tab.drag(((1600, 2500), (3600, 2500)))
    tab.fill()
    width, height = tab.page.evaluate(SIZE_THAT_WAS_SENT)
    assert 2000 + 2 * 256 < width < 5200
    assert width * height <= 24_000_000


def test_a_key_is_asked_for_and_kept_for_this_tab_alone(open_tab: OpenTab, serve: Serve, tmp_path: Path) -> None:
    key = new_key(tmp_path)
    server = serve(keys_file=tmp_path / "keys.json")
    tab = open_tab(f"{server.url}/", expected=REFUSED, key=key)
    tab.open(PICTURES / "dress.jpg").collect()
    tab.drag(LINE)
    tab.fill()
    stored = tab.page.evaluate("[JSON.stringify(sessionStorage), JSON.stringify(localStorage)]")
    assert key in stored[0]
    assert key not in stored[1]
    assert key not in tab.page.evaluate(STORED_WORK)
    tab.page.click("#code")
    code = tab.page.inner_text("#code-curl") + tab.page.inner_text("#code-python")
    assert code.count("RETOUCH_API_KEY") == 2
    assert key not in code + tab.page.url + tab.page.content()


def test_a_wrong_key_is_asked_for_again(open_tab: OpenTab, serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text('{"keys": []}')
    tab = open_tab(f"{serve(keys_file=tmp_path / 'keys.json').url}/", expected=REFUSED, key="rt_wrong", again=True)
    expect(tab.page.locator("#key-dialog")).to_be_visible()
    assert tab.page.input_value("#key") == ""
    tab.page.click("#key-dialog [data-close]")
    expect(tab.page.locator("#status.wrong")).to_be_visible()
    tab.open(PICTURES / "dress.jpg")
    tab.drag(LINE)
    expect(tab.page.locator("#key-dialog")).to_be_visible()


def test_a_button_without_work_does_not_look_ready_though_a_finger_left_it_hovered(tab: Tab) -> None:
    button = tab.page.locator("#fill")
    idle = button.evaluate("button => getComputedStyle(button).backgroundColor")
    for domain in ("DOM", "CSS"):
        tab.cdp.send(f"{domain}.enable")
    root = tab.cdp.send("DOM.getDocument")["root"]["nodeId"]
    node = tab.cdp.send("DOM.querySelector", {"nodeId": root, "selector": "#fill"})["nodeId"]
    tab.cdp.send("CSS.forcePseudoState", {"nodeId": node, "forcedPseudoClasses": ["hover"]})
    assert button.evaluate("button => getComputedStyle(button).backgroundColor") == idle
