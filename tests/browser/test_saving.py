"""Saved pictures: outside the fills they have the file's own pixels, for every kind of file."""

from __future__ import annotations

import io
import signal
from collections.abc import Callable
from itertools import pairwise
from zipfile import ZipFile

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms
from playwright.sync_api import expect

from tests.browser.conftest import OpenTab, Serve
from tests.browser.tab import PICTURES, Tab, encoded, noise

SIDE = 256
LINE = ((100, 100), (140, 100))
WIDTHS_OF_LINES = """words => {
    const all = new Range();
    all.selectNodeContents(words);
    return [...all.getClientRects()].map(({ width }) => width);
}"""


def test_after_twenty_fills_in_a_row_every_pixel_outside_them_is_the_files(tab: Tab) -> None:
    before = np.asarray(Image.open(PICTURES / "dress.jpg").convert("RGB"))
    tab.open(PICTURES / "dress.jpg").collect()
    tab.brush(10)
    painted = np.zeros(before.shape[:2], bool)
    for i in range(20):
        x, y = 20 + (i % 5) * 45, 30 + (i // 5) * 70
        tab.drag(((x, y), (x + 20, y + 10)))
        painted |= tab.mask()
        tab.fill()
    after = np.asarray(tab.saved())
    assert (after[~painted] == before[~painted]).all()
    assert (after[painted] != before[painted]).any()


@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_work_is_saved_though_the_server_is_gone(open_tab: OpenTab, serve: Serve, kind: str) -> None:
    server = serve()
    tab = open_tab(f"{server.url}/", expected="ERR_")
    before = np.asarray(Image.open(PICTURES / "dress.jpg").convert("RGB"))
    tab.open(PICTURES / "dress.jpg")
    tab.drag(LINE)
    tab.filled()
    server.kill()
    after = np.asarray(tab.saved(kind).convert("RGB"))
    assert (after[:64] == before[:64]).all()
    assert (after[95:105, 100:140] != before[95:105, 100:140]).any()


def test_work_is_saved_though_the_server_does_not_answer(open_tab: OpenTab, serve: Serve) -> None:
    server = serve()
    tab = open_tab(f"{server.url}/").open(PICTURES / "dress.jpg")
    server.process.send_signal(signal.SIGSTOP)
    try:
        with tab.page.expect_download(timeout=30_000) as saved:
            tab.page.keyboard.press("Control+s")
    finally:
        server.process.send_signal(signal.SIGCONT)
    assert Image.open(saved.value.path()).size == Image.open(PICTURES / "dress.jpg").size


def test_saving_all_can_be_cancelled_and_begun_again(tab: Tab) -> None:
    tab.open(*(encoded(noise(64, 64, seed=i), f"{i}.png") for i in range(2)))
    tab.page.evaluate(
        "globalThis.Real = Worker; globalThis.Worker = class { terminate() { globalThis.ended = true; }"
        " postMessage() { this.onmessage({ data: {} }); } }; 0"
    )
    tab.page.click("#zip")
    expect(tab.page.locator("#busy-text")).to_contain_text("Saving 1 of 2")
    tab.page.click("#cancel")
    tab.says("Cancelled.")
    assert tab.page.evaluate("ended")
    tab.page.evaluate("globalThis.Worker = Real; 0")
    with tab.page.expect_download(timeout=30_000) as saved:
        tab.page.click("#zip")
    with ZipFile(saved.value.path()) as packed:
        assert len(packed.namelist()) == 2


def test_the_page_says_that_it_saves_for_as_long_as_it_does(tab: Tab) -> None:
    tab.open(PICTURES / "dress.jpg")
    tab.page.evaluate(
        "globalThis.Worker = class { terminate() {}"
        " postMessage() { globalThis.slow = this; this.onmessage({ data: {} }); } }; 0"
    )
    tab.page.clock.install()
    tab.choose("save-menu", '[data-save="png"]')
    tab.page.clock.fast_forward(60_000)
    assert tab.page.inner_text("#status") == "Saving dress.jpg…"
    tab.page.evaluate("slow.onmessage({ data: { result: { blob: new Blob(), exact: true } } })")
    tab.says("Saved.")


def test_a_result_is_copied(open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url, permissions=["clipboard-read", "clipboard-write"]).open(PICTURES / "dress.jpg")
    tab.drag(LINE)
    tab.filled()
    expected = np.asarray(tab.saved())
    tab.page.keyboard.press("Control+c")
    tab.says("Copied")
    tab.page.keyboard.press("Control+v")
    tab.says("image.png is open")
    assert (np.asarray(tab.saved()) == expected).all()


def test_the_browser_keeps_its_own_keys_with_control_and_shift(open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url, permissions=["clipboard-read", "clipboard-write"]).open(PICTURES / "dress.jpg")
    tab.page.evaluate("addEventListener('keydown', event => document.title = `${event.key} ${event.defaultPrevented}`)")
    for key in "CSO":
        tab.page.keyboard.press(f"Control+Shift+{key}")
        assert tab.page.title() == f"{key} false"
    tab.page.keyboard.press("Control+Shift+Z")
    assert tab.page.title() == "Z true"


def test_where_a_browser_does_not_copy_pictures_the_page_says_so(open_tab: OpenTab, serve: Serve) -> None:
    url = serve(public_host="images.example").url.replace("127.0.0.1", "images.example")
    tab = open_tab(f"{url}/", expected="the server responded").open(PICTURES / "dress.jpg")
    tab.choose("save-menu", '[data-save="copy"]')
    tab.says("This browser cannot copy pictures here: save it instead.")


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
def test_a_png_of_any_kind_keeps_its_pixels(tab: Tab, kind: str) -> None:
    picture = KINDS[kind](noise(SIDE, SIDE, 4))
    mask = tab.paint_and_fill(encoded(picture, "picture.png"), LINE)
    mode = {"P": "RGB", "1": "L"}.get(kind, kind)
    saved = tab.saved()
    assert saved.mode == mode
    before, after = np.asarray(picture.convert(mode)), np.asarray(saved)
    assert (after[~mask] == before[~mask]).all()
    assert (after[mask] != before[mask]).any()


def test_sixteen_bits_stay_sixteen(tab: Tab) -> None:
    before = np.random.default_rng(1).integers(0, 65536, (SIDE, SIDE), np.uint16)
    mask = tab.paint_and_fill(encoded(Image.fromarray(before), "deep.png"), LINE)
    saved = tab.saved()
    after = np.asarray(saved)
    assert saved.mode == "I;16"
    assert (after[~mask] == before[~mask]).all()


def test_a_palette_with_transparency_keeps_it(tab: Tab) -> None:
    picture = Image.fromarray(noise(SIDE, SIDE)).quantize(64)
    mask = tab.paint_and_fill(encoded(picture, "palette.png", transparency=3), LINE)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", transparency=3)
    before, after = np.asarray(Image.open(buffer).convert("RGBA")), np.asarray(tab.saved())
    assert (after[~mask] == before[~mask]).all()


def test_a_jpeg_is_saved_as_its_own_decoded_pixels(tab: Tab) -> None:
    before = np.asarray(Image.open(PICTURES / "skirt.jpg").convert("RGB"))
    file = {"name": "skirt.jpg", "mimeType": "image/jpeg", "buffer": (PICTURES / "skirt.jpg").read_bytes()}
    mask = tab.paint_and_fill(file, LINE)
    after = np.asarray(tab.saved())
    assert (after[~mask] == before[~mask]).all()


def test_a_turned_photograph_is_saved_upright(tab: Tab) -> None:
    exif = Image.Exif()
    exif[0x112] = 6
    picture = Image.open(PICTURES / "skirt.jpg")
    tab.open(encoded(picture, "turned.jpg", "JPEG", exif=exif, quality=95))
    assert tab.saved().size == (picture.height, picture.width)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_the_colour_profile_is_kept(tab: Tab, kind: str) -> None:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    pixels = noise(SIDE, SIDE)
    tab.paint_and_fill(encoded(pixels, f"profiled.{kind.lower()}", kind, icc_profile=profile), LINE)
    assert tab.saved().info["icc_profile"] == profile
    assert tab.saved("jpeg").info["icc_profile"] == profile


def test_webp_is_offered_where_it_loses_nothing(tab: Tab) -> None:
    pixels = noise(SIDE, SIDE)
    mask = tab.paint_and_fill(encoded(pixels, "noise.png"), LINE)
    saved = tab.saved("webp")
    assert saved.format == "WEBP"
    assert (np.asarray(saved)[~mask] == pixels[~mask]).all()
    assert (np.asarray(saved) == np.asarray(tab.saved())).all()


def test_webp_is_not_offered_for_transparency(tab: Tab) -> None:
    tab.open(encoded(noise(SIDE, SIDE, 4), "alpha.png"))
    tab.page.click("#save-menu summary")
    assert tab.page.locator('[data-save="png"]').is_visible()
    assert tab.page.locator('[data-save="webp"]').is_hidden()


def test_a_file_that_is_no_picture_is_refused_in_words(open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url)
    evil = "<img src=x onerror=alert(1)>.png"
    tab.page.set_input_files(
        "#pick-pictures", {"name": evil, "mimeType": "image/png", "buffer": b"nothing of the kind"}
    )
    tab.says("cannot be opened: damaged")
    assert evil in tab.page.inner_text("#status")
    assert tab.page.locator("#status img").count() == 0


def test_nothing_of_what_was_filled_is_seen_through_a_half_transparent_fill(tab: Tab) -> None:
    picture = Image.new("RGBA", (SIDE, SIDE), (0, 160, 0, 128))
    picture.paste((255, 0, 0, 128), (100, 90, 140, 110))
    tab.open(encoded(picture, "glass.png")).collect()
    tab.brush(50)
    tab.drag(LINE)
    tab.fill()
    saved = np.asarray(tab.saved())[100, 120].astype(int)
    assert saved[0] < 60, "the fill itself is red"
    assert tab.saved("jpeg").getpixel((120, 100))[0] < 160  # half of the fill on white is 128
    x, y = tab.on_screen((120, 100))
    shown = Image.open(io.BytesIO(tab.page.screenshot(clip={"x": x, "y": y, "width": 1, "height": 1})))
    red, green, _ = shown.convert("RGB").getpixel((0, 0))
    assert red < green - 40


def test_the_message_about_it_leaves_no_empty_box_behind(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve().url}/").open(PICTURES / "dress.jpg")
    tab.saved()
    tab.says("Saved")
    message = tab.page.locator("#status")
    expect(message).to_have_css("opacity", "1")
    without_words = "line => { line.textContent = ''; return getComputedStyle(line).opacity; }"
    assert message.evaluate(without_words) == "0"


def test_a_message_of_several_lines_stands_in_the_middle_of_its_box(tab: Tab) -> None:
    tab.page.set_input_files("#pick-pictures", [{"name": "a.jpg", "mimeType": "image/jpeg", "buffer": b"no"}])
    tab.says("a.jpg cannot be opened")
    gaps = """line => {
        const all = new Range();
        all.selectNodeContents(line);
        const [words, box] = [all.getBoundingClientRect(), line.getBoundingClientRect()];
        return [words.left - box.left, box.right - words.right];
    }"""
    left, right = tab.page.locator("#status").evaluate(gaps)
    assert abs(left - right) < 4


@pytest.mark.parametrize("size", [(360, 640), (390, 844), (820, 1180), (1280, 720)])
def test_messages_cover_neither_the_controls_above_the_picture_nor_each_other(
    open_tab: OpenTab, serve: Serve, size: tuple[int, int]
) -> None:
    url = f"{serve(fake_batch_ms=3000).url}/"
    tab = open_tab(url, viewport=dict(zip(("width", "height"), size, strict=True))).open(PICTURES / "dress.jpg")
    tab.drag(LINE)
    tab.open(PICTURES / "skirt.jpg")
    boxes = [tab.page.locator(name).bounding_box() for name in ("header", "#busy", "#status")]
    tab.page.click("#cancel")
    assert all(upper["y"] + upper["height"] < lower["y"] for upper, lower in pairwise(boxes)), boxes


def test_a_message_is_on_the_screen_of_a_page_that_is_rolled_down(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve().url}/", viewport={"width": 320, "height": 256}).open(PICTURES / "dress.jpg")
    tab.page.evaluate("scrollTo(0, 10_000)")
    tab.saved()
    tab.says("Saved")
    box = tab.page.locator("#status").bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= 256


def test_on_a_phone_no_line_of_a_wait_holds_its_last_letter_alone(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve().url}/", expected="ERR_", viewport={"width": 375, "height": 667})
    tab.page.route("**/v1/generate", lambda route: route.abort())
    tab.page.click("#tab-generate")
    tab.page.click("#draw-form .main")
    words = tab.page.locator("#busy-text")
    expect(words).to_contain_text("cannot be reached: trying again in", timeout=30_000)
    widths = words.evaluate(WIDTHS_OF_LINES)
    assert min(widths) > max(widths) / 3
