"""Accessibility: screen readers, small and large screens, touch, dark and light, high contrast, right to left."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import Browser, expect

from tests.browser.conftest import CHROMIUM, SWITCHES, OpenTab, Serve
from tests.browser.tab import PICTURES, Tab, encoded

AXE = Path(__file__).parents[2] / ".venv-browser/node_modules/axe-core/axe.min.js"
SCREENS = {"phone": (390, 844), "phone on its side": (844, 390), "desktop": (1440, 900), "4K": (3840, 2160)}
MIN_TARGET = 44
WORDS_END = "box => { const r = new Range(); r.selectNode(box.nextSibling); return r.getBoundingClientRect().right; }"


def violations(tab: Tab) -> list[str]:
    """Return the axe-core rules that the page breaks; axe runs through CDP, as the page's policy forbids its script."""
    tab.cdp.send("Runtime.evaluate", {"expression": AXE.read_text("utf-8")})
    run = "async () => (await axe.run()).violations.map(v => `${v.id}: ${v.nodes.map(n => n.html)}`)"
    return list(tab.page.evaluate(run))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_nothing(open_tab: OpenTab, url: str, scheme: str, screen: str) -> None:
    width, height = SCREENS[screen]
    tab = open_tab(url, viewport={"width": width, "height": height}, color_scheme=scheme)
    found = {"empty": violations(tab)}
    tab.open(PICTURES / "dress.jpg", PICTURES / "skirt.jpg")
    tab.page.click("#compare")
    tab.page.wait_for_timeout(300)
    found["open"] = violations(tab)
    for dialog in ("help", "code"):
        tab.page.click(f"#{dialog}")
        found[dialog] = violations(tab)
        tab.page.keyboard.press("Escape")
    tab.page.click("#save-menu summary")
    found["menu"] = violations(tab)
    tab.page.click("#tab-translate")
    found["translate"] = violations(tab)
    assert found == {name: [] for name in found}


@pytest.mark.parametrize("screen", SCREENS)
def test_everything_is_on_the_screen_and_large_enough_for_a_finger(open_tab: OpenTab, url: str, screen: str) -> None:
    width, height = SCREENS[screen]
    tab = open_tab(url, viewport={"width": width, "height": height})
    tab.open(PICTURES / "dress.jpg", PICTURES / "skirt.jpg")
    small = []
    for button in tab.page.locator("button:visible, summary:visible, select:visible, [role=tab]:visible").all():
        box = button.bounding_box()
        name = button.get_attribute("aria-label") or button.inner_text()
        if name.startswith("Close "):
            continue  # a mark on the corner of a thumbnail
        if box["width"] < MIN_TARGET or box["height"] < MIN_TARGET:
            small.append((name, box))
        assert box["x"] >= 0, name
        assert box["x"] + box["width"] <= width, name
        assert box["y"] + box["height"] <= height, name
    assert small == []
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("size", [(1366, 650), (844, 390), (640, 400), (390, 844), (320, 568)])
def test_a_menu_is_whole_on_the_screen_and_the_picture_beside_the_controls_can_be_seen(
    open_tab: OpenTab, url: str, size: tuple[int, int]
) -> None:
    tab = open_tab(url, viewport=dict(zip(("width", "height"), size, strict=True)))
    tab.open(PICTURES / "dress.jpg", PICTURES / "skirt.jpg")
    assert tab.page.locator("#stage").bounding_box()["height"] > 145
    outside = []
    for menu in ("mask", "save"):
        tab.page.click(f"#{menu}-menu summary")
        for button in tab.page.locator(f"#{menu}-menu button:visible").all():
            box = button.bounding_box()
            right, bottom = box["x"] + box["width"], box["y"] + box["height"]
            if min(box["x"], box["y"]) < 0 or right > size[0] or bottom > size[1]:
                outside.append((button.inner_text(), box))
        tab.page.keyboard.press("Escape")
    assert outside == []


@pytest.mark.parametrize("size", [(568, 320), (360, 225)])
def test_a_menu_takes_the_height_of_a_low_window(open_tab: OpenTab, url: str, size: tuple[int, int]) -> None:
    tab = open_tab(url, viewport=dict(zip(("width", "height"), size, strict=True))).open(PICTURES / "dress.jpg")
    for menu in ("mask", "save"):
        tab.page.click(f"#{menu}-menu summary")
        box = tab.page.locator(f"#{menu}-menu > div").bounding_box()
        assert box["height"] > 0.9 * min(size[1], 260), menu
        assert min(box["x"], box["y"], size[0] - box["x"] - box["width"], size[1] - box["y"] - box["height"]) >= 0
        tab.page.keyboard.press("Escape")


def test_a_picture_is_opened_seen_and_filled_in_a_window_enlarged_four_times(open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url, viewport={"width": 320, "height": 256})
    with tab.page.expect_file_chooser():
        tab.page.click("#open-first")
    tab.open(PICTURES / "dress.jpg")
    assert tab.page.locator("#surface").bounding_box()["height"] > 128
    tab.page.locator("#surface").scroll_into_view_if_needed()
    tab.drag(((100, 150), (140, 150)))
    tab.filled()
    tab.page.click("#save-menu summary")
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 320


@pytest.mark.parametrize("width", [1024, 999, 844, 821, 740, 667, 640])
def test_the_row_under_the_picture_is_as_high_as_a_button(open_tab: OpenTab, url: str, width: int) -> None:
    tab = open_tab(url, viewport={"width": width, "height": 390})
    assert tab.page.locator("#actions").bounding_box()["height"] <= MIN_TARGET + 17
    sizes = [tab.page.locator(box).bounding_box()["width"] for box in ("#texture", "#instant")]
    assert sizes == [20, 20]
    for label, after in (("#texture", "#instant"), ("#instant", "#fill")):
        assert tab.page.locator(after).bounding_box()["x"] - tab.page.locator(label).evaluate(WORDS_END) > 7


@pytest.mark.parametrize("width", [1100, 999, 844, 821])
def test_every_action_is_on_the_screen_where_a_model_draws_variants(
    open_tab: OpenTab, serve: Serve, all_models: Path, width: int
) -> None:
    tab = open_tab(f"{serve(models_dir=all_models).url}/", viewport={"width": width, "height": 600})
    tab.page.select_option("#model", "diverse/1")
    expect(tab.page.locator("#samples")).to_be_visible()
    for name in ("#samples", "#texture", "#instant", "#fill", "#save-menu", "#mask-menu"):
        box = tab.page.locator(name).bounding_box()
        assert box["x"] + box["width"] <= width, name
        assert box["y"] + box["height"] <= 600, name
    tab.page.click("#save-menu summary")
    assert tab.page.locator("#save-menu > div").bounding_box()["x"] >= 0


def test_help_is_read_from_its_beginning_on_a_phone(open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url, viewport={"width": 390, "height": 500})
    tab.page.click("#help")
    place = tab.page.locator("#help-dialog").evaluate("dialog => [dialog.scrollTop, dialog.scrollHeight > 600]")
    assert place == [0, True]


@pytest.mark.parametrize("width", [320, 360, 390])
def test_a_phone_has_one_row_for_the_header_and_one_for_the_fill(open_tab: OpenTab, url: str, width: int) -> None:
    tab = open_tab(url, viewport={"width": width, "height": 700}).open(PICTURES / "dress.jpg")
    expect(tab.page.locator("#texture")).to_be_visible()
    names = ("fill", "code", "theme", "help", "model", "samples")
    tops = {name: tab.page.locator(f"#{name}").bounding_box()["y"] for name in names}
    assert abs(tops["fill"] + 12 - tab.page.locator("#texture").bounding_box()["y"]) < 2
    assert tops["code"] == tops["theme"] == tops["help"] < tops["model"] == tops["samples"]
    expect(tab.page.locator("#samples-field span")).to_be_visible()


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_text_twice_as_large_as_usual_is_shown_as_large_and_hides_no_control(
    browser: Browser, url: str, tmp_path: Path, width: int
) -> None:
    (tmp_path / "Default").mkdir()
    (tmp_path / "Default/Preferences").write_text('{"webkit": {"webprefs": {"default_font_size": 32}}}')
    with browser.browser_type.launch_persistent_context(
        tmp_path, executable_path=CHROMIUM, args=SWITCHES, viewport={"width": width, "height": 720}
    ) as context:
        tab = Tab(context.new_page(), url).go().open(PICTURES / "dress.jpg")
        size = tab.page.evaluate("parseFloat(getComputedStyle(document.body).fontSize)")
        boxes = {
            button.get_attribute("aria-label") or button.inner_text(): button.bounding_box()
            for button in tab.page.locator("button:not([role=tab]):visible, summary:visible").all()  # tabs scroll
        }
    assert size >= 30
    assert {
        name: box for name, box in boxes.items() if box["x"] + box["width"] > width or box["y"] + box["height"] > 720
    } == {}


def test_the_size_of_the_brush_is_read_out_once(tab: Tab) -> None:
    nodes = tab.cdp.send("Accessibility.getFullAXTree")["nodes"]
    live = [
        node["name"]["value"]
        for node in nodes
        if any(part["name"] == "live" and part["value"]["value"] == "polite" for part in node.get("properties", []))
    ]
    assert sorted(live) == ["", "Zoom"]  # the status line, and the zoom


def test_the_switch_turns_dark_into_light_and_is_remembered(browser: Browser, open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url, color_scheme="dark")
    back = "getComputedStyle(document.body).backgroundColor"
    dark = tab.page.evaluate(back)
    tab.page.click("#theme")
    light = tab.page.evaluate(back)
    assert light != dark
    tab.go()
    assert tab.page.evaluate(back) == light


def seen(tab: Tab, left: int, top: int, right: int, bottom: int) -> NDArray[np.uint8]:
    """Return an area of the picture as shown on the screen, RGB."""
    tab.page.mouse.move(0, 0)
    tab.page.wait_for_timeout(200)
    (x, y), (x2, y2) = tab.on_screen((left, top)), tab.on_screen((right, bottom))
    shot = tab.page.screenshot(clip={"x": round(x), "y": round(y), "width": round(x2 - x), "height": round(y2 - y)})
    return np.asarray(Image.open(io.BytesIO(shot)).convert("RGB"))


def contrast(tab: Tab, *area: int) -> float:
    """Return the largest WCAG contrast ratio of two pixels in an area, with a plain gamma of 2.2."""
    linear = (seen(tab, *area) / 255) ** 2.2
    luminance = linear @ (0.2126, 0.7152, 0.0722)
    return float((luminance.max() + 0.05) / (luminance.min() + 0.05))


@pytest.mark.parametrize("colour", [(236, 43, 116), (150, 20, 90), (255, 255, 255), (0, 0, 0)])
def test_what_is_painted_is_seen_on_a_picture_of_any_colour(tab: Tab, colour: tuple[int, int, int]) -> None:
    tab.open(encoded(Image.new("RGB", (320, 320), colour), "plain.png")).collect()
    tab.brush(50)
    tab.drag(((100, 160), (220, 160)))
    tab.page.mouse.move(0, 0)
    assert contrast(tab, 110, 110, 210, 210) > 1.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_black_line_on_nothing_is_seen_as_is_where_the_picture_ends(open_tab: OpenTab, url: str, scheme: str) -> None:
    picture = Image.new("RGBA", (320, 320))
    picture.paste((0, 0, 0, 255), (100, 100, 220, 120))
    tab = open_tab(url, color_scheme=scheme).open(encoded(picture, "line.png"))
    assert contrast(tab, 90, 90, 230, 130) > 7
    inside, outside = seen(tab, 1, 150, 40, 190), seen(tab, -15, 150, -1, 190)
    assert len(np.unique(inside.reshape(-1, 3), axis=0)) > 1 == len(np.unique(outside.reshape(-1, 3), axis=0))


def test_a_black_photograph_ends_somewhere_on_a_dark_page(open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url, color_scheme="dark").open(encoded(Image.new("RGB", (320, 320)), "night.png"))
    assert contrast(tab, -10, 150, 10, 170) > 1.3


def test_a_finger_leaves_no_button_looking_as_if_it_were_on(open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    tab.open(PICTURES / "dress.jpg")
    ground = "button => getComputedStyle(button).backgroundColor"
    before = tab.page.locator("#compare").evaluate(ground)
    tab.page.tap("#compare")
    assert tab.page.locator("#compare").evaluate(ground) != before
    tab.page.tap("#compare")
    assert tab.page.locator("#compare").evaluate(ground) == before


@pytest.mark.parametrize("size", [(1440, 900), (844, 390), (820, 1180), (390, 844)])
def test_a_menu_is_whole_on_the_screen_from_right_to_left(open_tab: OpenTab, url: str, size: tuple[int, int]) -> None:
    tab = open_tab(url, viewport=dict(zip(("width", "height"), size, strict=True))).open(PICTURES / "dress.jpg")
    tab.page.evaluate("document.documentElement.dir = 'rtl'")  # as browsers do when they translate the page
    for menu in ("mask", "save"):
        tab.page.click(f"#{menu}-menu summary")
        box = tab.page.locator(f"#{menu}-menu > div").bounding_box()
        assert box["x"] >= 0, menu
        assert box["x"] + box["width"] <= size[0], menu
        tab.page.keyboard.press("Escape")


def test_what_is_chosen_and_what_is_said_have_a_border_in_high_contrast(open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url, forced_colors="active").open(PICTURES / "dress.jpg", PICTURES / "skirt.jpg")
    tab.page.click("#compare")
    border = "element => getComputedStyle(element).border"
    for one, other in (
        ("#strip [aria-current=true]", "#strip [aria-current=false]"),
        ("#tab-inpaint", "#tab-translate"),
        ("#compare", "#peek"),
    ):
        assert tab.page.locator(one).evaluate(border) != tab.page.locator(other).evaluate(border), one
    for said in ("#status", "#divider span"):
        assert float(tab.page.locator(said).evaluate("e => parseFloat(getComputedStyle(e).borderTopWidth)")) > 0, said


def test_a_field_is_so_large_that_a_phone_does_not_zoom_in_on_it(open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url, viewport={"width": 390, "height": 844}, has_touch=True)
    fields = "[...document.querySelectorAll('select, input:not([type=range], [type=checkbox], [hidden])')]"
    sizes = tab.page.evaluate(f"{fields}.map(field => parseFloat(getComputedStyle(field).fontSize))")
    assert len(sizes) > 3
    assert min(sizes) >= 16


def test_help_needs_no_sideways_scrolling_on_a_narrow_phone(open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url, viewport={"width": 280, "height": 650})
    tab.page.click("#help")
    assert tab.page.locator("#help-dialog").evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth")


@pytest.mark.parametrize("width", [320, 360])
def test_on_a_narrow_phone_all_tabs_are_seen_and_nothing_speaks_of_dropping_or_keys(
    open_tab: OpenTab, serve: Serve, width: int
) -> None:
    tab = open_tab(f"{serve().url}/", viewport={"width": width, "height": 640}, has_touch=True, is_mobile=True)
    expect(tab.page.locator("#tab-results")).to_be_visible()
    assert tab.page.locator("[role=tablist]").evaluate("tabs => tabs.scrollWidth <= tabs.clientWidth")
    expect(tab.page.get_by_text("Drop photographs here")).to_be_hidden()
    tab.open(PICTURES / "dress.jpg").page.click("#save-menu summary")
    assert tab.page.locator("kbd:visible").count() == 0
