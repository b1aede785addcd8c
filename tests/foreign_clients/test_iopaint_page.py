"""IOPaint's own page in Chromium: upload, paint, get the fill."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.foreign_clients.page_proxy import served_page

ROOT = Path(__file__).parents[2]
PAGE = ROOT / ".venv-compat/iopaint/iopaint/web_app"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
SWITCHES = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@pytest.fixture
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield browser.new_page(viewport={"width": 1280, "height": 900})
        browser.close()


def test_upload_paint_and_the_fill_arrives(page: Page, url: str, tmp_path: Path) -> None:
    with served_page(PAGE, url) as (address, calls):
        page.goto(address)
        page.locator("input[type=file]").first.set_input_files(ROOT / "tests/data/crocs.jpg")
        canvas = page.locator("canvas").first
        expect(canvas).to_be_visible()
        page.wait_for_timeout(1_000)  # time for the page to position the picture
        box = canvas.bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x - 40, y)
        page.mouse.down()
        with page.expect_response("**/api/v1/inpaint", timeout=120_000) as answered:
            page.mouse.move(x + 40, y + 10, steps=12)
            page.mouse.up()
        assert answered.value.status == 200
        assert answered.value.headers["content-type"] == "image/jpeg"  # the type of the upload
        page.wait_for_timeout(1_000)
        page.screenshot(path=os.environ.get("SCREENSHOT") or tmp_path / "page.png")
        assert page.get_by_text("error", exact=False).count() == 0
    assert ("/api/v1/server-config", 200) in calls
    assert {status for path, status in calls if path != "/api/v1/inputimage"} == {200}, calls
