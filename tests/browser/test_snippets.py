"""What is copied as curl or Python runs as it is, and gives what the page gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.conftest import OpenTab, Serve
from tests.browser.tab import PICTURES, Tab
from tests.browser.test_gallery import REFUSED, new_key

LINE = ((100, 150), (140, 150))
NAMES = ("photo.jpg", 'it\'s "my" $(photo); 50 %, (1) \\ä.jpg')
LANGUAGES = ("curl", "python")
CLIPBOARD = {"permissions": ["clipboard-read", "clipboard-write"]}


def copied(tab: Tab, language: str) -> str:
    """Copy the current request with its button."""
    tab.page.click("#code")
    tab.page.click(f"[data-copy=code-{language}]")
    expect(tab.page.locator("#code-dialog #status")).to_have_text("Copied.")
    text: str = tab.page.evaluate("navigator.clipboard.readText()")
    tab.page.click("#code-dialog [data-close]")
    return text


def run(text: str, language: str, folder: Path, **environ: str) -> None:
    """Run what was copied in a folder, as in a terminal there."""
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
