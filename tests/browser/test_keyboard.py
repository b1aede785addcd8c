"""The keyboard, alone and together with a mouse, in several layouts."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser.conftest import OpenTab, Serve
from tests.browser.tab import PICTURES, Tab

CONTROL, ALT = 2, 1
MAC = (
    "Object.defineProperty(navigator, 'userAgentData', { value: undefined });"
    "Object.defineProperty(navigator, 'platform', { value: 'MacIntel' });"
)


def press(tab: Tab, key: str, code: str, modifiers: int = 0) -> None:
    """Press a key of another keyboard layout: `key` is the character, `code` the key's position."""
    for kind in ("keyDown", "keyUp"):
        tab.cdp.send("Input.dispatchKeyEvent", {"type": kind, "key": key, "code": code, "modifiers": modifiers})


def test_the_picture_is_in_hand_once_it_is_opened_with_the_keyboard(tab: Tab) -> None:
    tab.page.on("filechooser", lambda _: None)
    tab.go()
    tab.page.focus("#open-first")
    with tab.page.expect_file_chooser() as chooser:
        tab.page.keyboard.press("Enter")
    chooser.value.set_files(PICTURES / "dress.jpg")
    tab.says("open")
    expect(tab.page.locator("#surface")).to_be_focused()


def test_without_a_photograph_the_focus_does_not_go_to_a_picture_that_is_not_seen(tab: Tab) -> None:
    stops = ("size", "", "open-first", "open")  # between them is the mask's menu
    tab.page.focus(f"#{stops[0]}")
    for stop in stops[1:]:
        tab.page.keyboard.press("Tab")
        assert tab.page.evaluate("document.activeElement.id") == stop
    expect(tab.page.get_by_role("application")).to_have_count(0)


@pytest.mark.parametrize("key", ["Control+s", "g"])
def test_what_needs_a_photograph_asks_for_one(tab: Tab, key: str) -> None:
    tab.page.keyboard.press(key)
    tab.says("Open a photograph first.")


def test_every_control_has_a_name_and_is_reached_with_the_tab_key(tab: Tab) -> None:
    tab.open(PICTURES / "dress.jpg").collect()
    wanted = {
        "code",
        "theme",
        "help",
        "size",
        "surface",
        "open",
        "zoom-in",
        "zoom-out",
        "fit",
        "compare",
        "peek",
        "instant",
        "texture",
    }
    seen = set()
    for _ in range(60):
        tab.page.keyboard.press("Tab")
        seen.add(tab.page.evaluate("document.activeElement.id"))
    assert wanted - seen == set()
    unnamed = "[...document.querySelectorAll('button')].filter(b => !(b.ariaLabel || b.textContent.trim())).length"
    assert tab.page.evaluate(unnamed) == 0


def test_a_picture_is_filled_and_saved_with_the_keyboard_alone(tab: Tab) -> None:
    tab.page.on("filechooser", lambda _: None)  # before the page loads, else choosers are caught too late
    tab.go()
    with tab.page.expect_file_chooser() as chooser:
        tab.page.keyboard.press("Control+o")
    chooser.value.set_files(PICTURES / "dress.jpg")
    tab.says("open")
    expect(tab.page.locator("#surface")).to_be_focused()
    for key in ("b", "Enter", *("ArrowRight",) * 3, "Enter"):
        tab.page.keyboard.press(key)
    tab.filled()
    for key, pressed in (("l", "lasso"), ("r", "rectangle"), ("e", "eraser")):
        tab.page.keyboard.press(key)
        expect(tab.page.locator(f'[data-tool="{pressed}"]')).to_have_attribute("aria-pressed", "true")
    tab.page.keyboard.press("d")
    divider = tab.page.locator("#divider")
    divider.focus()
    tab.page.keyboard.press("ArrowRight")
    expect(divider).to_have_attribute("aria-valuenow", "52")
    with tab.page.expect_download():
        tab.page.keyboard.press("Control+s")
    tab.page.keyboard.press("?")
    expect(tab.page.locator("#help-dialog")).to_be_visible()


def test_what_is_chosen_or_cancelled_with_the_keyboard_leaves_the_focus_near(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve(fake_batch_ms=5000).url}/").open(PICTURES / "dress.jpg").collect()
    tab.page.focus("#mask-menu summary")
    for key in ("Enter", "Tab", "Tab", "Tab", "Enter"):
        tab.page.keyboard.press(key)
    expect(tab.page.locator("#mask-menu summary")).to_be_focused()
    expect(tab.page.locator("#mask-menu")).not_to_have_attribute("open", "")
    tab.page.keyboard.press("Control+z")
    tab.drag(((100, 150), (140, 150)))
    tab.page.keyboard.press("f")
    tab.page.focus("#cancel")
    tab.page.keyboard.press("Enter")
    tab.says("Cancelled")
    expect(tab.page.locator("#surface")).to_be_focused()


def test_a_button_with_nothing_more_to_do_keeps_the_focus_and_does_nothing(tab: Tab) -> None:
    tab.open(PICTURES / "dress.jpg").collect()
    tab.drag(((100, 150), (140, 150)))
    for button, other in (("#undo", "#redo"), ("#redo", "#undo")):
        tab.page.focus(button)
        tab.page.keyboard.press("Enter")
        expect(tab.page.locator(button)).to_be_disabled()
        expect(tab.page.locator(button)).to_be_focused()
        tab.page.keyboard.press("Enter")
        expect(tab.page.locator(other)).to_be_enabled()
    tab.page.focus("#fill")
    tab.page.keyboard.press("Enter")
    tab.filled()
    expect(tab.page.locator("#fill")).to_be_disabled()
    expect(tab.page.locator("#fill")).to_be_focused()
    assert tab.page.locator("#undo").evaluate("button => getComputedStyle(button).opacity") == "1"
    assert tab.page.locator("#redo").evaluate("button => getComputedStyle(button).opacity") == "0.6"


def test_enter_held_down_puts_the_brush_down_once(blank: Tab) -> None:
    blank.page.focus("#surface")
    for _ in range(4):  # the key auto-repeats
        blank.page.keyboard.down("Enter")
    blank.page.keyboard.up("Enter")
    for _ in range(10):
        blank.page.keyboard.press("ArrowRight")
    blank.page.keyboard.press("Enter")
    columns = np.flatnonzero(blank.mask().any(axis=0))
    assert np.ptp(columns) == len(columns) - 1 > 4 * int(blank.page.inner_text("#size-shown"))


def test_what_a_key_has_changed_is_read_out(blank: Tab) -> None:
    blank.page.focus("#surface")
    said = {"l": "Tool: lasso.", "b": "Tool: brush.", "]": "23 pixels.", "Enter": "Stroke started."}
    for key, text in (*said.items(), ("Enter", "Stroke ended."), ("g", "Mask: grow."), ("Delete", "Mask: clear.")):
        blank.page.keyboard.press(key)
        expect(blank.page.locator("#status")).to_have_text(text)
        expect(blank.page.locator("#status")).to_have_class("unseen")


def test_the_keys_work_on_a_keyboard_of_other_letters(blank: Tab) -> None:
    blank.drag(((80, 80), (160, 80)))
    press(blank, "я", "KeyZ", CONTROL)
    expect(blank.page.locator("#undo")).to_be_disabled()
    press(blank, "у", "KeyE")
    expect(blank.page.locator('[data-tool="eraser"]')).to_have_attribute("aria-pressed", "true")
    press(blank, "х", "BracketLeft")
    expect(blank.page.locator("#size-shown")).to_have_text("17")
    press(blank, "ъ", "BracketRight")
    expect(blank.page.locator("#size-shown")).to_have_text("20")


def test_a_letter_with_an_accent_is_no_bracket_and_a_bracket_may_be_typed_with_alt(blank: Tab) -> None:
    press(blank, "ü", "BracketLeft")  # German
    expect(blank.page.locator("#size-shown")).to_have_text("20")
    press(blank, "[", "Digit5", ALT)  # German on a Mac
    expect(blank.page.locator("#size-shown")).to_have_text("17")
    press(blank, "e", "KeyE", ALT)  # reserved for a menu of the browser
    expect(blank.page.locator('[data-tool="brush"]')).to_have_attribute("aria-pressed", "true")


@pytest.mark.parametrize("arrow", ["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown"])
def test_the_place_that_arrows_lead_to_is_seen_on_a_picture_that_is_larger_than_the_window(
    blank: Tab, arrow: str
) -> None:
    for _ in range(12):
        blank.page.keyboard.press("+")
    blank.page.focus("#surface")
    for _ in range(12):
        blank.page.keyboard.press(arrow)
    blank.page.wait_for_timeout(100)
    drawn = blank.page.locator("#surface").evaluate(
        """canvas => {
            const { width, height } = canvas;
            const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
            return data.some(value => value > 0);
        }"""
    )
    assert drawn, "the cursor is outside of the window"


@pytest.mark.parametrize("control", ["#undo", "#instant", "#size", '[data-tool="brush"]', "#mask-menu summary"])
def test_space_pans_after_a_control_was_used_with_the_mouse(open_tab: OpenTab, url: str, control: str) -> None:
    tab = open_tab(url).open(PICTURES / "dress.jpg").collect()
    for y in (60, 150):
        tab.drag(((60, y), (90, y)))
    tab.page.click(control, force=True)
    checked, shown = tab.page.is_checked("#instant"), tab.page.locator("#layer-picture")
    mask = tab.page.locator("#layer-mask").evaluate("canvas => canvas.toDataURL()")
    before = shown.evaluate("canvas => canvas.toDataURL()")
    tab.page.mouse.move(*tab.on_screen((100, 200)))
    tab.page.keyboard.down(" ")
    tab.page.mouse.down()
    tab.page.mouse.move(*tab.on_screen((140, 230)), steps=3)
    tab.page.mouse.up()
    tab.page.keyboard.up(" ")
    tab.page.wait_for_timeout(100)
    assert shown.evaluate("canvas => canvas.toDataURL()") != before, "the picture was not moved"
    tab.page.keyboard.press("0")
    tab.page.wait_for_timeout(100)
    assert tab.page.locator("#layer-mask").evaluate("canvas => canvas.toDataURL()") == mask, "it painted"
    assert tab.page.is_checked("#instant") == checked


def test_space_presses_the_button_that_the_tab_key_went_to(tab: Tab) -> None:
    tab.open(PICTURES / "dress.jpg").collect()
    tab.drag(((60, 60), (90, 60)))  # the mouse rests on the picture
    tab.page.focus("#close")
    tab.page.keyboard.press("Tab")
    expect(tab.page.locator("#undo")).to_be_focused()
    tab.page.keyboard.press(" ")
    expect(tab.page.locator("#undo")).to_be_disabled()


def test_on_a_mac_the_command_key_does_what_its_labels_say(open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url)
    tab.page.add_init_script(MAC)
    tab.go().open(PICTURES / "dress.jpg").collect()
    named = (("#undo", "Undo (⌘ Z)"), ("#redo", "Redo (⌘ Shift Z)"), ("#open", "Open photographs (⌘ O)"))
    for button, title in named:
        expect(tab.page.locator(button)).to_have_attribute("title", title)
    assert "Command" in tab.page.inner_text("#surface-help")
    tab.page.click("#save-menu summary")
    assert tab.page.locator("#save-menu kbd").all_inner_texts() == ["⌘ S", "⌘ C"]
    tab.page.keyboard.press("?")
    keys = tab.page.inner_text("#keys")
    assert "⌘ Z, ⌘ Shift Z" in keys
    assert "Ctrl" not in keys
    tab.page.keyboard.press("Escape")
    tab.drag(((100, 150), (140, 150)))
    tab.page.keyboard.press("Meta+z")
    expect(tab.page.locator("#undo")).to_be_disabled()
    tab.page.keyboard.press("Meta+Shift+z")
    expect(tab.page.locator("#undo")).to_be_enabled()
    with tab.page.expect_download():
        tab.page.keyboard.press("Meta+s")


def test_elsewhere_the_labels_name_the_control_key(tab: Tab) -> None:
    expect(tab.page.locator("#undo")).to_have_attribute("title", "Undo (Ctrl Z)")
    assert "⌘" not in tab.page.inner_text("body")


@pytest.mark.parametrize("tool", ["b", "l", "r"])
def test_escape_takes_back_the_stroke_in_progress(blank: Tab, tool: str) -> None:
    blank.page.keyboard.press(tool)
    blank.page.mouse.move(*blank.on_screen((80, 80)))
    blank.page.mouse.down()
    blank.page.mouse.move(*blank.on_screen((160, 80)), steps=4)
    blank.page.mouse.move(*blank.on_screen((160, 160)), steps=4)
    blank.page.keyboard.press("Escape")
    expect(blank.page.locator("#status.unseen")).to_have_text("Stroke cancelled.")
    blank.page.mouse.move(*blank.on_screen((240, 160)), steps=4)
    blank.page.mouse.up()
    expect(blank.page.locator("#undo")).to_be_disabled()
    expect(blank.page.locator("#fill")).to_be_disabled()
    blank.page.keyboard.press("b")
    blank.drag(((80, 80), (160, 80)))
    expect(blank.page.locator("#undo")).to_be_enabled()


def test_no_frame_is_around_the_picture_while_one_paints_on_it_with_the_mouse(tab: Tab) -> None:
    tab.open(PICTURES / "dress.jpg")  # without a click before, as after a drop or a paste
    tab.drag(((100, 150), (140, 150)))
    expect(tab.page.locator("#surface")).to_be_focused()
    framed = "surface => surface.matches(':focus-visible')"
    assert not tab.page.locator("#surface").evaluate(framed)
    for key in ("Shift+Tab", "Tab"):
        tab.page.keyboard.press(key)
    assert tab.page.locator("#surface").evaluate(framed), "the keyboard's place is not seen"


def test_where_there_are_no_keys_the_help_speaks_of_fingers(open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    tab.page.tap("#help")
    expect(tab.page.locator("#help-dialog")).to_contain_text("one finger paints, two move and enlarge")
    expect(tab.page.locator("#keys")).to_be_hidden()


@pytest.mark.parametrize("key", ["g", "s"])
def test_a_key_that_grows_or_shrinks_an_empty_mask_says_that_it_is_empty(tab: Tab, key: str) -> None:
    tab.open(PICTURES / "dress.jpg").page.keyboard.press(key)
    tab.says("the mask is empty")
