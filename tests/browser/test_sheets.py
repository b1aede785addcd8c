"""The forms for translation and generation, the choice of tasks and models, and requests as curl or Python."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.conftest import OpenTab, Serve
from tests.browser.tab import PICTURES, Tab, encoded
from tests.browser.test_gallery import REFUSED, new_key

LINE = ((100, 150), (140, 150))
NAMES = ("photo.jpg", 'it\'s "my" $(photo); 50 %, (1) \\ä.jpg')
LANGUAGES = ("curl", "python")
CLIPBOARD = {"permissions": ["clipboard-read", "clipboard-write"]}
PIXELS = """async image => {
    await image.decode();
    const {naturalWidth: width, naturalHeight: height} = image;
    const canvas = Object.assign(document.createElement("canvas"), {width, height});
    canvas.getContext("2d").drawImage(image, 0, 0);
    return canvas.toDataURL();
}"""


def test_a_label_map_becomes_a_picture_that_can_be_saved_and_painted_on(tab: Tab) -> None:
    tab.page.click("#tab-translate")
    tab.page.set_input_files("#translate-form input", PICTURES / "facade_labels.png")
    tab.page.keyboard.press("Tab")
    tab.page.click("#translate-form .main")
    picture = tab.page.locator("#translated img")
    expect(picture).to_be_visible(timeout=60_000)
    assert picture.evaluate("async image => { await image.decode(); return image.naturalWidth; }") > 0
    with tab.page.expect_download():
        tab.page.click("#translated button:has-text('Save')")
    tab.page.press("#translated button:has-text('Edit')", "Enter")
    expect(tab.page.locator("#panel-inpaint")).to_be_visible()
    expect(tab.page.locator("#surface")).to_be_focused()
    expect(tab.page.locator("#surface")).to_have_attribute(
        "aria-label", "Picture facade_labels translated.png, 256 by 256 pixels"
    )


def test_a_file_dropped_on_a_field_goes_into_it_and_nothing_is_sent_while_another_is_missing(tab: Tab) -> None:
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    tab.page.click("#tab-translate")
    tab.page.select_option("#model", "facades-labels/1")
    fields = tab.page.locator("#translate-form input")
    box = fields.nth(1).bounding_box()
    tab.drop(PICTURES / "class_ids/facade.png", (box["x"] + 20, box["y"] + 20))
    assert fields.evaluate_all("all => all.map(({files}) => files.length)") == [0, 1]
    assert asked == []
    tab.drop(PICTURES / "class_ids/facade.png", (20, box["y"] + 300))
    expect(tab.page.locator("#translated img")).to_be_visible(timeout=60_000)


def test_work_that_is_cancelled_on_another_tab_leaves_the_focus_there(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve(fake_batch_ms=8000).url}/").open(PICTURES / "dress.jpg").collect()
    tab.drag(((100, 150), (140, 150)))
    near = {"translate": "#translate-form button", "results": "#tab-results"}
    for task, focused in near.items():
        tab.page.click("#tab-inpaint")
        tab.page.keyboard.press("f")
        tab.page.click(f"#tab-{task}")
        tab.page.focus("#cancel")
        tab.page.keyboard.press("Enter")
        tab.says("Cancelled.")
        expect(tab.page.locator(focused)).to_be_focused()


def test_the_larger_model_is_offered_in_plain_words_and_its_choice_is_remembered(tab: Tab) -> None:
    options = tab.page.locator("#model option")
    names = ["Fast: photos 5", "fronts-diverse 1", "Better, 2 to 4 times as long: photos-large 1"]
    expect(options).to_have_text(names, timeout=300_000)
    tab.page.select_option("#model", "photos-large/1")
    tab.go()
    expect(tab.page.locator("#model")).to_have_value("photos-large/1")
    tab.page.click("#help")
    expect(tab.page.locator("#help-dialog")).to_contain_text("Sharper copies texture from the photograph")


def test_a_key_is_no_models_name_after_the_mouse_chose_one_nor_one_with_control(tab: Tab) -> None:
    tab.open(PICTURES / "dress.jpg").collect().drag(LINE)
    for name, value in (("#model", "photos-large/1"), ("#samples", "2")):
        tab.page.locator(name).dispatch_event("pointerdown")  # what a mouse does in the open list is not the page's
        tab.page.focus(name)
        tab.page.select_option(name, value)
        expect(tab.page.locator("#surface")).to_be_focused()
    tab.page.keyboard.press("f")
    tab.says("2 variants: choose one")
    expect(tab.page.locator("#model")).to_have_value("photos-large/1")
    tab.page.focus("#model")
    tab.page.keyboard.press("ArrowUp")
    expect(tab.page.locator("#model")).to_be_focused()
    tab.page.keyboard.press("Control+z")
    expect(tab.page.locator("#redo")).to_be_enabled()


def test_undo_without_a_photograph_cancels_no_translation(open_tab: OpenTab, serve: Serve) -> None:
    tab = open_tab(f"{serve(fake_batch_ms=1500).url}/")
    tab.page.click("#tab-translate")
    tab.page.set_input_files("#translate-form input", PICTURES / "facade_labels.png")
    tab.page.click("#translate-form .main")
    expect(tab.page.locator("#busy")).to_be_visible()
    tab.page.click("#tab-inpaint")
    tab.page.keyboard.press("Control+z")
    tab.says("Done.")
    expect(tab.page.locator("#translated img")).to_have_count(1)


def test_drawing_is_not_shown_where_no_model_draws(
    open_tab: OpenTab, serve: Serve, all_models: Path, tmp_path: Path
) -> None:
    some = tmp_path / "some"
    some.mkdir()
    for name in ("photos", "facades"):
        (some / name).symlink_to(all_models / name)
    tab = open_tab(f"{serve(models_dir=some).url}/")
    assert tab.page.locator("#tab-translate").is_visible()
    assert tab.page.locator("#tab-generate").is_hidden()


def test_pictures_are_drawn_and_the_same_seed_draws_the_same(open_tab: OpenTab, serve: Serve, all_models: Path) -> None:
    tab = open_tab(f"{serve(models_dir=all_models, generate_model='faces').url}/")
    assert "18 digits" in (tab.page.get_attribute("#seed", "title") or "")  # the browser says it of a word
    tab.page.focus("#tab-inpaint")
    for _ in range(2):
        tab.page.keyboard.press("ArrowLeft")  # wraps around to the last one, then the one before it
    assert tab.page.get_attribute("#tab-generate", "aria-selected") == "true"
    for _ in range(2):
        tab.page.fill("#seed", "7")
        tab.page.fill("#count", "2")
        before = tab.page.locator("#drawn img").count()
        tab.page.press("#count", "Enter")
        expect(tab.page.locator("#drawn img")).to_have_count(before + 2, timeout=60_000)
    assert tab.page.locator("#drawn figcaption").first.inner_text().endswith("seed 7, 1 of 2")
    pictures = tab.page.locator("#drawn img")
    pixels = [pictures.nth(i).evaluate(PIXELS) for i in range(4)]
    assert pixels[:2] == pixels[2:]
    assert pixels[0] != pixels[1]


def test_only_drawing_is_shown_where_models_only_draw(
    open_tab: OpenTab, serve: Serve, all_models: Path, tmp_path: Path
) -> None:
    only = tmp_path / "only"
    only.mkdir()
    (only / "faces").symlink_to(all_models / "faces")
    server = serve(models_dir=only, generate_model="faces", inpaint_model="", translate_model="")
    tab = open_tab(f"{server.url}/")
    expect(tab.page.locator("#panel-generate")).to_be_visible()
    assert tab.page.locator("#tab-inpaint").is_hidden()
    tab.page.click("#code")
    assert "v1/generate" in tab.page.inner_text("#code-curl")


def test_a_label_map_that_left_the_disk_is_named(tab: Tab, tmp_path: Path) -> None:
    file = tmp_path / "labels.png"
    shutil.copy(PICTURES / "facade_labels.png", file)
    tab.page.click("#tab-translate")
    tab.page.set_input_files("#translate-form input", file)
    file.unlink()
    tab.page.click("#translate-form .main")
    tab.says("labels.png cannot be read")


def test_a_refusal_is_told_without_the_marks_of_code(open_tab: OpenTab, url: str) -> None:
    tab = open_tab(url, expected="415")
    tab.page.click("#tab-translate")
    tab.page.set_input_files("#translate-form input", [{"name": "a.png", "mimeType": "image/png", "buffer": b"no"}])
    tab.page.click("#translate-form .main")
    tab.says("Image: the file is of unknown type")


def copied(tab: Tab, language: str) -> str:
    """Copy the current request in a language with the page's button; returns the clipboard's text."""
    tab.page.click("#code")
    tab.page.click(f"[data-copy=code-{language}]")
    expect(tab.page.locator("#code-dialog #status")).to_have_text("Copied.")
    text: str = tab.page.evaluate("navigator.clipboard.readText()")
    tab.page.click("#code-dialog [data-close]")
    return text


def run(text: str, language: str, folder: Path, **environ: str) -> None:
    """Run a copied request in a folder, as in a terminal."""
    command = ["bash", "-c", text] if language == "curl" else [sys.executable, "-c", text]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **environ}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def painted(tab: Tab, folder: Path, name: str) -> None:
    """Open a photograph of the folder, paint on it, and save the mask beside it."""
    (folder / name).write_bytes((PICTURES / "dress.jpg").read_bytes())
    tab.open(folder / name).collect()
    tab.drag(LINE)
    mask = tab.download("mask-menu", '[data-mask="export"]')
    mask.save_as(folder / mask.suggested_filename)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("name", NAMES)
def test_a_fill_is_repeated_elsewhere(open_tab: OpenTab, url: str, tmp_path: Path, name: str, language: str) -> None:
    tab = open_tab(url, **CLIPBOARD)
    painted(tab, tmp_path, name)
    run(copied(tab, language), language, tmp_path)
    tab.fill()
    assert (np.asarray(Image.open(tmp_path / "result.png")) == np.asarray(tab.saved())).all()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_key_comes_from_the_environment(open_tab: OpenTab, serve: Serve, tmp_path: Path, language: str) -> None:
    key = new_key(tmp_path, "inference")
    server = serve(keys_file=tmp_path / "keys.json")
    tab = open_tab(f"{server.url}/", expected=REFUSED, key=key, **CLIPBOARD)
    painted(tab, tmp_path, NAMES[0])
    text = copied(tab, language)
    assert key not in text
    run(text, language, tmp_path, RETOUCH_API_KEY=key)
    assert Image.open(tmp_path / "result.png").size == (256, 341)
    with pytest.raises(AssertionError, match="401"):
        run(text, language, tmp_path, RETOUCH_API_KEY="rt_wrong")


def test_variants_are_shown_and_one_is_chosen(open_tab: OpenTab, serve: Serve, all_models: Path) -> None:
    tab = open_tab(f"{serve(models_dir=all_models).url}/").open(PICTURES / "dress.jpg").collect()
    expect(tab.page.locator("#samples-field")).to_be_visible()
    tab.page.select_option("#model", "diverse/1")
    tab.page.select_option("#samples", "4")
    tab.drag(LINE)
    tab.page.click("#fill")
    tab.says("4 variants: choose one. Seed")
    choices = tab.page.locator("#variants button")
    expect(choices).to_have_count(4)
    seen = []
    for i in range(4):
        choices.nth(i).click()
        seen.append(np.asarray(tab.saved()).tobytes())
    assert len(set(seen)) > 1
    choices.nth(2).press("Enter")
    expect(choices.nth(2)).to_be_focused()
    tab.page.keyboard.press("Control+z")
    expect(tab.page.locator("#variants")).to_be_hidden()
    expect(tab.page.locator("#surface")).to_be_focused()
    tab.page.keyboard.press("Control+Shift+z")
    expect(choices.nth(2)).to_have_attribute("aria-pressed", "true")
    expect(choices.nth(2)).to_be_visible()


@pytest.mark.parametrize("size", [(1440, 900), (844, 390), (390, 844)])
def test_a_fill_at_the_bottom_of_a_picture_is_seen_above_its_variants(
    open_tab: OpenTab, url: str, size: tuple[int, int]
) -> None:
    tab = open_tab(url, viewport=dict(zip(("width", "height"), size, strict=True)))
    tab.open(encoded(Image.new("RGB", (480, 960), (255, 0, 0)), "red.png"))
    tab.page.select_option("#samples", "4")
    tab.drag(((220, 950), (260, 950)))
    tab.says("4 variants")
    box = tab.page.locator("#variants").bounding_box()
    seen = Image.open(io.BytesIO(tab.page.screenshot())).convert("RGB")
    column = [seen.getpixel((size[0] // 2, y)) for y in range(int(box["y"]) - 40, int(box["y"]))]
    assert column[0][1] < 50 < column[-1][1], "the picture does not end above them"


@pytest.mark.parametrize("language", LANGUAGES)
def test_variants_drawings_and_translations_run_too(
    open_tab: OpenTab, serve: Serve, all_models: Path, tmp_path: Path, language: str
) -> None:
    tab = open_tab(f"{serve(models_dir=all_models, generate_model='faces').url}/", **CLIPBOARD)
    painted(tab, tmp_path, NAMES[0])
    tab.page.select_option("#model", "diverse/1")
    tab.page.select_option("#samples", "2")
    made = ["results.json"] if language == "curl" else ["result-0.png", "result-1.png"]
    run(copied(tab, language), language, tmp_path)
    assert all((tmp_path / name).stat().st_size for name in made)
    for name in made:
        (tmp_path / name).unlink()
    tab.page.click("#tab-generate")
    tab.page.fill("#count", "2")
    run(copied(tab, language), language, tmp_path)
    assert all((tmp_path / name).stat().st_size for name in made)
    tab.page.fill("#count", "1")
    run(copied(tab, language), language, tmp_path)
    assert Image.open(tmp_path / "result.png").size == (64, 64)
    tab.page.click("#tab-translate")
    (tmp_path / "labels.png").write_bytes((PICTURES / "facade_labels.png").read_bytes())
    tab.page.set_input_files("#translate-form input", tmp_path / "labels.png")
    run(copied(tab, language), language, tmp_path)
    assert Image.open(tmp_path / "result.png").size == (256, 256)
