"""Several photographs: one mask for all, and one ZIP of the results."""

from __future__ import annotations

import io
import zipfile

import numpy as np
from PIL import Image
from playwright.sync_api import expect

from tests.browser.desk import Desk, encoded, noise

COUNT = 20


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
    desk.page.click('#strip button[aria-label="Close 0.png"]')
    expect(desk.page.locator("#surface")).to_have_attribute("aria-label", "Picture 1.png, 200 by 200 pixels")
    desk.page.click('#strip button[aria-label="Close 1.png"]')
    expect(desk.page.locator("#strip")).to_be_hidden()
