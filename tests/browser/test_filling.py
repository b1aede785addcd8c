"""Fills: when they are made, and what they equal."""

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

from tests.browser.conftest import ROOT, Serve, Tab
from tests.browser.desk import PICTURES, Desk, encoded, noise
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


def test_a_fill_equals_that_of_the_api(desk: Desk, url: str) -> None:
    desk.open(PICTURES / "dress.jpg").collect()
    desk.drag(LINE)
    mask = desk.mask()
    desk.fill()
    buffer = io.BytesIO()
    Image.fromarray(mask.astype(np.uint8) * 255).save(buffer, "PNG")
    files = {"image": (PICTURES / "dress.jpg").read_bytes(), "mask": buffer.getvalue()}
    texture = {"texture": "copied"} if desk.page.locator("#texture").is_visible() else {}
    reply = httpx.post(f"{url}v1/inpaint", files=files, data=texture, timeout=60)
    expected = np.asarray(Image.open(io.BytesIO(reply.content)))
    assert (np.asarray(desk.saved()) == expected).all()


def test_it_fills_when_the_stroke_is_let_go(desk: Desk) -> None:
    desk.open(PICTURES / "dress.jpg")
    desk.drag(LINE)
    desk.filled()
    assert desk.page.locator("#fill").is_disabled(), "the mask is still there"


def test_texture_is_asked_for_unless_a_person_does_not_want_it(desk: Desk) -> None:
    replies: list[str | None] = []
    desk.page.on(
        "response", lambda reply: replies.append(reply.headers.get("x-texture")) if "inpaint" in reply.url else None
    )
    desk.open(PICTURES / "dress.jpg")
    desk.drag(LINE)
    desk.filled()
    desk.page.uncheck("#texture")
    desk.drag(((60, 60), (80, 60)))
    desk.filled()
    desk.page.reload()
    assert not desk.page.is_checked("#texture")
    assert replies == ["copied", None]


def test_it_collects_strokes_until_it_is_asked(desk: Desk) -> None:
    desk.open(PICTURES / "dress.jpg").collect()
    desk.drag(LINE)
    desk.drag(((60, 60), (80, 60)))
    assert desk.page.locator("#busy").is_hidden()
    desk.page.keyboard.press("f")
    desk.filled()
    desk.go()
    assert not desk.page.is_checked("#instant"), "the mode is not remembered"


def test_strokes_painted_during_a_fill_are_filled_after_it(tab: Tab, serve: Serve) -> None:
    desk = tab(f"{serve(fake_batch_ms=1500).url}/").open(PICTURES / "dress.jpg")
    desk.drag(LINE)
    expect(desk.page.locator("#busy")).to_be_visible()
    desk.drag(((60, 60), (80, 60)))
    desk.filled()
    expect(desk.page.locator("#fill")).to_be_disabled(timeout=30_000)


def test_strokes_on_another_photograph_are_filled_though_the_fill_before_them_was_cancelled(
    tab: Tab, serve: Serve
) -> None:
    desk = tab(f"{serve(fake_batch_ms=1500).url}/").open(PICTURES / "dress.jpg", PICTURES / "dress_mask.png")
    desk.drag(LINE)
    expect(desk.page.locator("#busy")).to_be_visible()
    desk.drag(((60, 60), (80, 60)))
    desk.page.keyboard.press("PageDown")
    expect(desk.page.locator("#surface")).to_have_attribute("aria-label", re.compile("dress_mask"))
    desk.drag(LINE)
    desk.page.click("#cancel")
    desk.filled()
    assert desk.page.locator("#fill").is_disabled(), "the mask is still there"
    desk.page.keyboard.press("PageUp")
    expect(desk.page.locator("#fill")).to_be_enabled()  # what was cancelled is for a person to fill
    assert desk.page.locator("#busy").is_hidden()
    assert desk.mask()[150, 100:140].all()


def test_a_stroke_in_progress_when_a_fill_comes_is_kept_whole(tab: Tab, serve: Serve) -> None:
    desk = tab(f"{serve(fake_batch_ms=500).url}/").open(PICTURES / "dress.jpg").collect()
    desk.drag(LINE)
    with desk.page.expect_response("**/v1/inpaint") as reply:
        desk.page.click("#fill")
        desk.page.mouse.move(*desk.on_screen((60, 60)))
        desk.page.mouse.down()
        desk.page.mouse.move(*desk.on_screen((80, 60)), steps=4)
    reply.value.finished()
    desk.page.wait_for_timeout(500)
    desk.page.mouse.move(*desk.on_screen((120, 60)), steps=4)
    desk.page.mouse.up()
    desk.filled()
    mask = desk.mask()
    assert mask[60, 60:120].all()
    assert not mask[150].any(), "what was filled is still to be filled"
    desk.page.click("#undo")
    desk.page.click("#undo")
    assert (desk.mask()[150, 100:140]).all()
    assert not desk.mask()[60].any()


def test_the_last_mask_is_filled_again_in_another_way_as_one_step(desk: Desk) -> None:
    replies = []
    desk.page.on(
        "response", lambda reply: replies.append(reply.headers.get("x-texture")) if "inpaint" in reply.url else None
    )
    desk.open(PICTURES / "dress.jpg")
    desk.drag(LINE)
    desk.filled()
    sharper = np.asarray(desk.saved())
    desk.page.uncheck("#texture")
    desk.choose("mask-menu", '[data-mask="again"]')
    desk.filled()
    assert replies == ["copied", None]
    smooth = np.asarray(desk.saved())
    assert (smooth != sharper).any()
    desk.page.keyboard.press("Control+z")
    assert desk.page.locator("#fill").is_disabled()
    assert (np.asarray(desk.saved()) == sharper).all()
    desk.page.keyboard.press("a")
    desk.filled()
    assert (np.asarray(desk.saved()) == smooth).all()


def test_a_model_that_is_gone_is_replaced_by_those_that_are_there(tab: Tab, serve: Serve, tmp_path: Path) -> None:
    models = tmp_path / "models"
    shutil.copytree(ROOT / "models/photos/5", models / "photos/5")
    desk = tab(f"{serve(models_dir=models).url}/", expected=REFUSED).open(PICTURES / "dress.jpg").collect()
    desk.drag(LINE)
    manifest = json.loads((models / "photos/5/manifest.json").read_text())
    shutil.copytree(models / "photos/5", models / "photos/6")
    (models / "photos/6/manifest.json").write_text(json.dumps({**manifest, "version": 6}))
    shutil.rmtree(models / "photos/5")
    wait_until(lambda: [model["version"] for model in httpx.get(f"{desk.url}v1/models").json()["models"]] == [6])
    desk.page.click("#fill")
    desk.says("No model photos/5")
    expect(desk.page.locator("#model")).to_have_value("photos/6")
    desk.fill()


def test_variants_are_shown_and_one_is_chosen(tab: Tab, serve: Serve, all_models: Path) -> None:
    desk = tab(f"{serve(models_dir=all_models).url}/").open(PICTURES / "dress.jpg").collect()
    expect(desk.page.locator("#samples-field")).to_be_hidden()
    desk.page.select_option("#model", "diverse/1")
    desk.page.select_option("#samples", "4")
    desk.drag(LINE)
    desk.page.click("#fill")
    desk.says("4 variants: choose one. Seed")
    choices = desk.page.locator("#variants button")
    expect(choices).to_have_count(4)
    seen = []
    for i in range(4):
        choices.nth(i).click()
        seen.append(np.asarray(desk.saved()).tobytes())
    assert len(set(seen)) > 1
    choices.nth(2).press("Enter")
    expect(choices.nth(2)).to_be_focused()
    desk.page.keyboard.press("Control+z")
    expect(desk.page.locator("#variants")).to_be_hidden()
    expect(desk.page.locator("#surface")).to_be_focused()


def test_painting_everything_is_answered_with_what_a_person_can_do(desk: Desk) -> None:
    desk.open(PICTURES / "dress.jpg").collect()
    desk.page.keyboard.press("i")
    desk.page.click("#fill")
    desk.says("Everything is painted, so nothing is left to fill from: erase a part of it.")
    assert desk.page.locator("#fill").is_enabled()


def test_a_png_that_the_server_refuses_and_the_browser_shows_is_filled(tab: Tab, url: str) -> None:
    notes = PngInfo()
    notes.add_text("Comment", "a holiday")
    file = encoded(noise(200, 200), "noise.png", pnginfo=notes)
    file["buffer"] = file["buffer"].replace(b"a holiday", b"a workday")  # the checksum is that of the other text
    desk = tab(url, expected=REFUSED)
    painted = desk.paint_and_fill(file, LINE)
    changed = (np.asarray(desk.saved()) != noise(200, 200)).any(axis=2)
    assert changed.any()
    assert not changed[~painted].any()


def test_a_large_picture_is_sent_in_part_and_filled_in_place(desk: Desk) -> None:
    pixels = noise(3000, 2400)
    desk.open(encoded(pixels, "large.png", compress_level=1)).collect()
    desk.page.evaluate(NOTE_WHAT_IS_SENT)
    desk.drag(((1000, 900), (1030, 900)))
    desk.fill()
    width, height = desk.page.evaluate(SIZE_THAT_WAS_SENT)
    assert 70 + 2 * 256 <= width < 1200
    assert 40 + 2 * 256 <= height < 1200
    saved = np.asarray(desk.saved())
    rows, columns = np.nonzero((saved != pixels).any(axis=2))
    assert (rows.mean(), columns.mean()) == pytest.approx((899.5, 1014.5), abs=3)


def test_a_long_stroke_on_a_very_large_picture_is_sent_with_less_around_it(desk: Desk) -> None:
    desk.open(encoded(np.zeros((5000, 5200, 3), np.uint8), "large.png", compress_level=1)).collect()
    desk.page.evaluate(NOTE_WHAT_IS_SENT)
    desk.drag(((1600, 2500), (3600, 2500)))
    desk.fill()
    width, height = desk.page.evaluate(SIZE_THAT_WAS_SENT)
    assert 2000 + 2 * 256 < width < 5200
    assert width * height <= 24_000_000


def test_a_key_is_asked_for_and_kept_for_this_tab_alone(tab: Tab, serve: Serve, tmp_path: Path) -> None:
    key = new_key(tmp_path)
    server = serve(keys_file=tmp_path / "keys.json")
    desk = tab(f"{server.url}/", expected=REFUSED, key=key)
    desk.open(PICTURES / "dress.jpg").collect()
    desk.drag(LINE)
    desk.fill()
    stored = desk.page.evaluate("[JSON.stringify(sessionStorage), JSON.stringify(localStorage)]")
    assert key in stored[0]
    assert key not in stored[1]
    assert key not in desk.page.evaluate(STORED_WORK)
    desk.page.click("#code")
    code = desk.page.inner_text("#code-curl") + desk.page.inner_text("#code-python")
    assert code.count("RETOUCH_API_KEY") == 2
    assert key not in code + desk.page.url + desk.page.content()


def test_a_wrong_key_is_asked_for_again(tab: Tab, serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text('{"keys": []}')
    desk = tab(f"{serve(keys_file=tmp_path / 'keys.json').url}/", expected=REFUSED, key="rt_wrong", again=True)
    expect(desk.page.locator("#key-dialog")).to_be_visible()
    assert desk.page.input_value("#key") == ""
    desk.page.click("#key-dialog [data-close]")
    expect(desk.page.locator("#status.wrong")).to_be_visible()
    desk.open(PICTURES / "dress.jpg")
    desk.drag(LINE)
    expect(desk.page.locator("#key-dialog")).to_be_visible()
