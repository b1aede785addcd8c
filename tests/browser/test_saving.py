"""What is saved: outside the fills the file's own pixels, whatever kind of file it was."""

from __future__ import annotations

import io
import signal
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms

from tests.browser.conftest import Serve, Tab
from tests.browser.desk import PICTURES, Desk, encoded, noise

SIDE = 256
LINE = ((100, 100), (140, 100))


def test_after_twenty_fills_in_a_row_every_pixel_outside_them_is_the_files(desk: Desk) -> None:
    before = np.asarray(Image.open(PICTURES / "dress.jpg").convert("RGB"))
    desk.open(PICTURES / "dress.jpg").collect()
    desk.brush(10)
    painted = np.zeros(before.shape[:2], bool)
    for i in range(20):
        x, y = 20 + (i % 5) * 45, 30 + (i // 5) * 70
        desk.drag(((x, y), (x + 20, y + 10)))
        painted |= desk.mask()
        desk.fill()
    after = np.asarray(desk.saved())
    assert (after[~painted] == before[~painted]).all()
    assert (after[painted] != before[painted]).any()


@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_work_is_saved_though_the_server_is_gone(tab: Tab, serve: Serve, kind: str) -> None:
    server = serve()
    desk = tab(f"{server.url}/", expected="ERR_")
    before = np.asarray(Image.open(PICTURES / "dress.jpg").convert("RGB"))
    desk.open(PICTURES / "dress.jpg")
    desk.drag(LINE)
    desk.filled()
    server.kill()
    after = np.asarray(desk.saved(kind).convert("RGB"))
    assert (after[:64] == before[:64]).all()
    assert (after[95:105, 100:140] != before[95:105, 100:140]).any()


def test_work_is_saved_though_the_server_does_not_answer(tab: Tab, serve: Serve) -> None:
    server = serve()
    desk = tab(f"{server.url}/").open(PICTURES / "dress.jpg")
    server.process.send_signal(signal.SIGSTOP)
    try:
        with desk.page.expect_download(timeout=30_000) as saved:
            desk.page.keyboard.press("Control+s")
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert Image.open(saved.value.path()).size == Image.open(PICTURES / "dress.jpg").size


def test_the_page_says_that_it_saves_for_as_long_as_it_does(desk: Desk) -> None:
    desk.open(PICTURES / "dress.jpg")
    desk.page.evaluate(
        "globalThis.Worker = class { terminate() {}"
        " postMessage() { globalThis.slow = this; this.onmessage({ data: {} }); } }; 0"
    )
    desk.page.clock.install()
    desk.choose("save-menu", '[data-save="png"]')
    desk.page.clock.fast_forward(60_000)
    assert desk.page.inner_text("#status") == "Saving dress.jpg…"
    desk.page.evaluate("slow.onmessage({ data: { result: { blob: new Blob(), exact: true } } })")
    desk.says("Saved.")


def test_a_result_is_copied(tab: Tab, url: str) -> None:
    desk = tab(url, permissions=["clipboard-read", "clipboard-write"]).open(PICTURES / "dress.jpg")
    desk.drag(LINE)
    desk.filled()
    expected = np.asarray(desk.saved())
    desk.page.keyboard.press("Control+c")
    desk.says("Copied")
    desk.page.keyboard.press("Control+v")
    desk.says("image.png is open")
    assert (np.asarray(desk.saved()) == expected).all()


def test_the_browser_keeps_its_own_keys_with_control_and_shift(tab: Tab, url: str) -> None:
    desk = tab(url, permissions=["clipboard-read", "clipboard-write"]).open(PICTURES / "dress.jpg")
    desk.page.evaluate(
        "addEventListener('keydown', event => document.title = `${event.key} ${event.defaultPrevented}`)"
    )
    for key in "CSO":
        desk.page.keyboard.press(f"Control+Shift+{key}")
        assert desk.page.title() == f"{key} false"
    desk.page.keyboard.press("Control+Shift+Z")
    assert desk.page.title() == "Z true"


def test_where_a_browser_does_not_copy_pictures_the_page_says_so(tab: Tab, serve: Serve) -> None:
    url = serve(public_host="images.example").url.replace("127.0.0.1", "images.example")
    desk = tab(f"{url}/", expected="the server responded").open(PICTURES / "dress.jpg")
    desk.choose("save-menu", '[data-save="copy"]')
    desk.says("This browser copies no pictures here: save it.")


def grey(pixels: NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(pixels[:, :, 0])


KINDS: dict[str, Callable[[NDArray[np.uint8]], Image.Image]] = {
    "RGB": lambda pixels: Image.fromarray(pixels[:, :, :3]),
    "RGBA": Image.fromarray,
    "L": grey,
    "LA": lambda pixels: Image.merge("LA", (grey(pixels), Image.fromarray(pixels[:, :, 3]))),
    "P": lambda pixels: Image.fromarray(pixels[:, :, :3]).quantize(64),
    "1": lambda pixels: grey(pixels).convert("1"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_png_of_any_kind_keeps_its_pixels(desk: Desk, kind: str) -> None:
    picture = KINDS[kind](noise(SIDE, SIDE, 4))
    mask = desk.paint_and_fill(encoded(picture, "picture.png"), LINE)
    mode = {"P": "RGB", "1": "L"}.get(kind, kind)
    saved = desk.saved()
    assert saved.mode == mode
    before, after = np.asarray(picture.convert(mode)), np.asarray(saved)
    assert (after[~mask] == before[~mask]).all()
    assert (after[mask] != before[mask]).any()


def test_sixteen_bits_stay_sixteen(desk: Desk) -> None:
    before = np.random.default_rng(1).integers(0, 65536, (SIDE, SIDE), np.uint16)
    mask = desk.paint_and_fill(encoded(Image.fromarray(before), "deep.png"), LINE)
    saved = desk.saved()
    after = np.asarray(saved)
    assert saved.mode == "I;16"
    assert (after[~mask] == before[~mask]).all()


def test_a_palette_with_transparency_keeps_it(desk: Desk) -> None:
    picture = Image.fromarray(noise(SIDE, SIDE)).quantize(64)
    mask = desk.paint_and_fill(encoded(picture, "palette.png", transparency=3), LINE)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", transparency=3)
    before, after = np.asarray(Image.open(buffer).convert("RGBA")), np.asarray(desk.saved())
    assert (after[~mask] == before[~mask]).all()


def test_a_jpeg_is_saved_as_its_own_decoded_pixels(desk: Desk) -> None:
    before = np.asarray(Image.open(PICTURES / "skirt.jpg").convert("RGB"))
    file = {"name": "skirt.jpg", "mimeType": "image/jpeg", "buffer": (PICTURES / "skirt.jpg").read_bytes()}
    mask = desk.paint_and_fill(file, LINE)
    after = np.asarray(desk.saved())
    assert (after[~mask] == before[~mask]).all()


def test_a_turned_photograph_is_saved_upright(desk: Desk) -> None:
    exif = Image.Exif()
    exif[0x112] = 6
    picture = Image.open(PICTURES / "skirt.jpg")
    desk.open(encoded(picture, "turned.jpg", "JPEG", exif=exif, quality=95))
    assert desk.saved().size == (picture.height, picture.width)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_the_colour_profile_is_kept(desk: Desk, kind: str) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    pixels = noise(SIDE, SIDE)
    desk.paint_and_fill(encoded(pixels, f"profiled.{kind.lower()}", kind, icc_profile=profile), LINE)
    assert desk.saved().info["icc_profile"] == profile
    assert desk.saved("jpeg").info["icc_profile"] == profile


def test_webp_is_offered_where_it_loses_nothing(desk: Desk) -> None:
    pixels = noise(SIDE, SIDE)
    mask = desk.paint_and_fill(encoded(pixels, "noise.png"), LINE)
    saved = desk.saved("webp")
    assert saved.format == "WEBP"
    assert (np.asarray(saved)[~mask] == pixels[~mask]).all()
    assert (np.asarray(saved) == np.asarray(desk.saved())).all()


def test_webp_is_not_offered_for_transparency(desk: Desk) -> None:
    desk.open(encoded(noise(SIDE, SIDE, 4), "alpha.png"))
    desk.page.click("#save-menu summary")
    assert desk.page.locator('[data-save="png"]').is_visible()
    assert desk.page.locator('[data-save="webp"]').is_hidden()


def test_a_file_that_is_no_picture_is_refused_in_words(tab: Tab, url: str) -> None:
    desk = tab(url)
    evil = "<img src=x onerror=alert(1)>.png"
    desk.page.set_input_files(
        "#pick-pictures", {"name": evil, "mimeType": "image/png", "buffer": b"nothing of the kind"}
    )
    desk.says("is neither a JPEG, PNG nor WebP picture")
    assert evil in desk.page.inner_text("#status")
    assert desk.page.locator("#status img").count() == 0
