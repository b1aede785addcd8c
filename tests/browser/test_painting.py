"""Painting with every input device and every tool."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import SIDE
from tests.browser.tab import Point, Tab, encoded

LINE = ((80.0, 80.0), (160.0, 80.0), (240.0, 80.0))


def by_keyboard(tab: Tab, points: Sequence[Point]) -> None:
    """Move from the middle to the first point in steps of 10 pixels, then along the others with the brush down."""
    tab.page.focus("#surface")
    at = (SIDE / 2, SIDE / 2)
    for i, (x, y) in enumerate(points):
        for key, distance in (
            ("ArrowRight", x - at[0]),
            ("ArrowLeft", at[0] - x),
            ("ArrowDown", y - at[1]),
            ("ArrowUp", at[1] - y),
        ):
            for _ in range(max(0, round(distance / 10))):
                tab.page.keyboard.press(key)
        at = (x, y)
        if i == 0:
            tab.page.keyboard.press("Enter")
    tab.page.keyboard.press("Enter")


DEVICES: dict[str, Callable[[Tab, Sequence[Point]], None]] = {
    "mouse": lambda tab, points: tab.drag(points),
    "pen": lambda tab, points: tab.pen(points, force=1.0),
    "touch": lambda tab, points: tab.touch(*([point] for point in points)),
    "keyboard": by_keyboard,
}


wide = pytest.mark.parametrize("blank", ["desktop"], indirect=True)


@pytest.mark.parametrize("device", DEVICES)
def test_a_stroke_marks_what_the_brush_passed(blank: Tab, device: str) -> None:
    DEVICES[device](blank, LINE)
    mask = blank.mask()
    assert mask[80, 70:250].all()
    rows, columns = np.nonzero(mask)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == pytest.approx((70, 89, 70, 249), abs=2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("tool", ["lasso", "rectangle"])
def test_an_area_is_marked_by_its_outline(blank: Tab, device: str, tool: str) -> None:
    corners = {"lasso": ((100, 100), (200, 100), (200, 200), (100, 200)), "rectangle": ((100, 100), (200, 200))}[tool]
    blank.page.click(f'[data-tool="{tool}"]')
    DEVICES[device](blank, corners)
    mask = blank.mask()
    assert mask[104:196, 104:196].all()
    assert mask.sum() == pytest.approx(100 * 100, rel=0.06)


@pytest.mark.parametrize("device", DEVICES)
def test_the_eraser_takes_away(blank: Tab, device: str) -> None:
    blank.drag(LINE)
    blank.page.keyboard.press("e")
    DEVICES[device](blank, ((160, 40), (160, 120)))
    mask = blank.mask()
    assert not mask[80, 155:165].any()
    assert mask[80, 90:140].all()


def test_shift_and_a_click_paint_a_straight_line_from_the_last_stroke(blank: Tab) -> None:
    blank.drag(((80, 80), (80, 80)))
    blank.page.keyboard.down("Shift")
    blank.drag(((240, 80), (240, 80)))
    assert blank.mask()[80, 75:245].all()
    blank.page.keyboard.press("r")
    blank.drag(((100, 200), (140, 240)))
    blank.page.keyboard.up("Shift")
    rows, columns = np.nonzero(blank.mask()[120:])
    assert (rows.min() + 120, columns.max()) == pytest.approx((200, 140), abs=2)


def test_the_right_button_erases_with_the_brush_in_hand(blank: Tab) -> None:
    blank.drag(LINE)
    blank.drag(((160, 40), (160, 120)), button="right")
    assert not blank.mask()[80, 155:165].any()


def test_the_other_end_of_a_pen_erases(blank: Tab) -> None:
    blank.drag(LINE)
    # CDP has no such button, so the events are dispatched in the page, with the mouse's pointer id
    for kind, point in (("down", (160, 40)), ("move", (160, 80)), ("move", (160, 120)), ("up", (160, 120))):
        x, y = blank.on_screen(point)
        event = {"pointerId": 1, "pointerType": "pen", "buttons": 0 if kind == "up" else 32, "button": 5, "pressure": 1}
        blank.page.locator("#surface").dispatch_event(
            f"pointer{kind}", {**event, "clientX": x, "clientY": y, "bubbles": True}
        )
    assert not blank.mask()[80, 155:165].any()


def test_a_pen_paints_wider_when_it_is_pressed(blank: Tab) -> None:
    blank.pen(((80, 80), (160, 80), (240, 80)), force=0.2)
    blank.pen(((80, 200), (160, 200), (240, 200)), force=0.9)
    mask = blank.mask()
    light, strong = (int(mask[row - 20 : row + 20, 160].sum()) for row in (80, 200))
    assert 4 <= light <= 9
    assert 16 <= strong <= 20


def test_a_brush_of_one_pixel_marks_one_and_is_remembered(blank: Tab) -> None:
    blank.brush(1)
    blank.drag(((100.5, 100.5), (200.5, 100.5)))
    mask = blank.mask()
    assert mask.any(axis=1).sum() == 1
    assert 99 <= mask.sum() <= 102
    blank.go()
    assert blank.page.inner_text("#size-shown") == "1"


def test_the_whole_mask_grows_shrinks_inverts_and_clears(blank: Tab) -> None:
    blank.page.click('[data-tool="rectangle"]')
    blank.drag(((100, 100), (200, 200)))
    first = int(blank.mask().sum())
    blank.choose("mask-menu", '[data-mask="grow"]')
    assert int(blank.mask().sum()) == pytest.approx((first**0.5 + 4) ** 2, abs=12)
    blank.choose("mask-menu", '[data-mask="shrink"]')
    assert int(blank.mask().sum()) == pytest.approx(first, abs=12)
    blank.choose("mask-menu", '[data-mask="invert"]')
    assert int(blank.mask().sum()) == pytest.approx(SIDE * SIDE - first, abs=12)
    blank.choose("mask-menu", '[data-mask="clear"]')
    assert blank.page.locator("#fill").is_disabled()


def test_the_mask_is_changed_undone_and_saved_with_the_keyboard_alone(blank: Tab) -> None:
    by_keyboard(blank, LINE)
    sizes = [int(blank.mask().sum())]
    for key in ("g", "s", "i", "Delete", "Control+z", "Control+z", "Control+y"):
        blank.page.keyboard.press(key)
        filled = blank.page.locator("#fill").is_enabled()
        sizes.append(int(blank.mask().sum()) if filled else 0)
        blank.page.focus("#surface")
    drawn, grown, shrunk, inverted, cleared, *again = sizes
    assert grown > drawn
    assert shrunk == pytest.approx(drawn, rel=0.02)
    assert (inverted, cleared, again) == (SIDE * SIDE - shrunk, 0, [inverted, shrunk, inverted])
    blank.page.focus("#mask-menu summary")
    blank.page.keyboard.press("Enter")
    blank.page.evaluate("addEventListener('click', e => { window.clicked = e.target.id; }, true)")
    blank.page.focus('#mask-menu [data-mask="import"]')
    blank.page.keyboard.press("Enter")
    assert blank.page.evaluate("window.clicked") == "pick-mask"  # the input that opens a file chooser


def test_a_saved_mask_comes_back_and_one_of_another_size_is_scaled(blank: Tab) -> None:
    pixels = np.zeros((SIDE, SIDE), np.uint8)
    pixels[10:50, 20:90] = 255
    blank.page.set_input_files("#pick-mask", encoded(pixels, "mask.png"))
    blank.says("is the mask now.")
    assert (blank.mask() == (pixels > 0)).all()
    blank.page.set_input_files("#pick-mask", encoded(pixels[::2, ::2], "half.png"))
    blank.says("half.png is the mask now, scaled to the picture.")
    assert (blank.mask() == (pixels > 0)).all()


@wide
def test_the_palm_of_the_hand_that_holds_the_pen_takes_no_stroke_back(blank: Tab) -> None:
    x, y = blank.on_screen(LINE[0])
    pen = {"x": x, "y": y, "button": "left", "buttons": 1, "force": 1, "pointerType": "pen", "clickCount": 1}
    blank.cdp.send("Input.dispatchMouseEvent", {"type": "mousePressed", **pen})
    blank.touch([(200, 200)], [(200, 200), (220, 220)])
    x, y = blank.on_screen(LINE[-1])
    blank.cdp.send("Input.dispatchMouseEvent", {"type": "mouseMoved", **pen, "x": x, "y": y})
    blank.cdp.send("Input.dispatchMouseEvent", {"type": "mouseReleased", **pen, "x": x, "y": y, "buttons": 0})
    assert blank.mask()[80, 80:240].all()


@wide
def test_a_mask_opened_during_a_stroke_waits_for_its_end(blank: Tab) -> None:
    opened = np.zeros((SIDE, SIDE), np.uint8)
    opened[200:210] = 255
    blank.page.mouse.move(*blank.on_screen(LINE[0]))
    blank.page.mouse.down()
    blank.page.set_input_files("#pick-mask", encoded(opened, "mask.png"))
    blank.page.wait_for_timeout(500)
    blank.page.mouse.move(*blank.on_screen(LINE[-1]), steps=4)
    blank.page.mouse.up()
    blank.says("mask.png is the mask now")
    assert (blank.mask() == (opened > 0)).all()
    blank.page.click("#undo")
    assert blank.mask()[80, 80:240].all()


def test_the_first_brush_suits_a_large_photograph_until_a_person_chooses_one(tab: Tab) -> None:
    large, small = (encoded(np.zeros((side, side, 3), np.uint8), f"{side}.png") for side in (2000, 200))
    shown = tab.page.locator("#size-shown")
    tab.open(large)
    expect(shown).to_have_text("80")
    tab.open(small)
    expect(shown).to_have_text("40")
    tab.page.keyboard.press("[")
    expect(shown).to_have_text("34")
    tab.open(large)
    expect(shown).to_have_text("34")
    tab.page.reload()
    expect(shown).to_have_text("34")


@pytest.mark.parametrize(("width", "height", "size"), [(9, 7, 2), (6000, 120, 40), (90, 3000, 30)])
def test_the_first_brush_leaves_some_of_a_small_or_narrow_picture(tab: Tab, width: int, height: int, size: int) -> None:
    tab.open(encoded(np.zeros((height, width, 3), np.uint8), "narrow.png"))
    expect(tab.page.locator("#size-shown")).to_have_text(str(size))


def test_a_chosen_brush_stays_for_the_next_photograph_where_nothing_can_be_remembered(tab: Tab) -> None:
    tab.page.add_init_script("Storage.prototype.setItem = () => { throw new DOMException('full'); };")
    tab.page.reload()
    tab.page.wait_for_selector("html[data-ready]")
    large, small = (encoded(np.zeros((side, side, 3), np.uint8), f"{side}.png") for side in (2000, 200))
    tab.open(large)
    tab.page.keyboard.press("[")
    expect(tab.page.locator("#size-shown")).to_have_text("68")
    tab.open(small)
    expect(tab.page.locator("#size-shown")).to_have_text("68")


def test_two_fingers_pan_and_zoom_and_paint_nothing(blank: Tab) -> None:
    before = blank.page.inner_text("#zoom")
    blank.touch([(100, 160)], [(100, 160), (200, 160)], [(80, 160), (220, 160)], [(40, 160), (260, 160)])
    assert int(blank.page.inner_text("#zoom")[:-2]) > int(before[:-2]) * 1.5
    assert blank.page.locator("#undo").is_disabled()


def test_the_picture_stays_when_one_of_two_fingers_is_lifted_moved_and_put_down_again(blank: Tab) -> None:
    def send(kind: str, *fingers: tuple[int, float]) -> None:
        y = blank.on_screen((200, 160))[1]
        points = [{"x": blank.on_screen((x, 160))[0], "y": y, "id": number} for number, x in fingers]
        blank.cdp.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    send("touchStart", (0, 100), (1, 200))
    send("touchMove", (0, 100), (1, 210))
    zoom = blank.page.inner_text("#zoom")
    send("touchEnd", (0, 100))
    for x in (180, 140):
        send("touchMove", (1, x))
    send("touchStart", (0, 40), (1, 140))
    send("touchMove", (0, 40), (1, 141))
    send("touchEnd")
    assert abs(int(blank.page.inner_text("#zoom")[:-2]) - int(zoom[:-2])) < 5
    assert blank.page.locator("#undo").is_disabled()


@wide  # on a phone gestures replace these buttons
def test_wheel_touchpad_keys_and_buttons_zoom(blank: Tab) -> None:
    def zoom() -> int:
        blank.page.wait_for_timeout(50)
        return int(blank.page.inner_text("#zoom")[:-2])

    blank.page.mouse.move(*blank.on_screen((160, 160)))
    seen = [zoom()]
    blank.page.mouse.wheel(0, -120)
    seen.append(zoom())
    blank.page.keyboard.press("+")
    seen.append(zoom())
    blank.page.click("#zoom-in")
    seen.append(zoom())
    assert seen == sorted(set(seen))
    blank.page.mouse.wheel(-30, 10)  # as from a touchpad: it pans
    assert zoom() == seen[-1]
    blank.page.keyboard.press("1")
    assert zoom() == 100
    blank.page.keyboard.press("0")
    assert zoom() == seen[0]


def test_dragging_with_space_held_pans(blank: Tab) -> None:
    blank.page.keyboard.press("1")
    blank.page.focus("#surface")
    blank.page.keyboard.down(" ")
    blank.drag(((160, 160), (200, 160)))
    blank.page.keyboard.up(" ")
    assert blank.page.locator("#undo").is_disabled()


def test_painting_hits_the_same_place_zoomed_in(blank: Tab) -> None:
    blank.page.mouse.move(*blank.on_screen((160, 160)))
    for _ in range(6):
        blank.page.mouse.wheel(0, -120)
    blank.page.mouse.down()
    blank.page.mouse.up()
    rows, columns = np.nonzero(blank.mask())
    assert (rows.mean(), columns.mean()) == pytest.approx((159.5, 159.5), abs=1)
