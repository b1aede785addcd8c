"""Takes the pictures of docs/page.md, from a running server.

.venv-browser/bin/python -m benchmarks.page.screenshots
"""

from __future__ import annotations

import argparse
import io
import os
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).parents[2]
PHOTOGRAPHS = [ROOT / "tests/data" / name for name in ("dress.jpg", "skirt.jpg", "crocs.jpg")]
SWITCHES = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
QUALITY = 82


def opened(browser: Browser, url: str, width: int, height: int, scheme: str) -> Page:
    """Open a tab with three photographs and a stroke on the first."""
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
    page.goto(url)
    page.wait_for_selector("html[data-ready]", timeout=120_000)
    page.uncheck("#instant")
    page.set_input_files("#pick-pictures", PHOTOGRAPHS)
    page.wait_for_selector("#status:has-text('open')", timeout=60_000)
    box = page.locator("#surface").bounding_box()
    if box is None:
        raise SystemExit("the page shows no picture")
    x, y, unit = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, min(box["width"], box["height"]) / 700
    page.mouse.move(x - 90 * unit, y + 20 * unit)
    page.mouse.down()
    for dx, dy in ((-40, 50), (10, 40), (60, 75)):
        page.mouse.move(x + dx * unit, y + dy * unit, steps=6)
    page.mouse.up()
    return page


def save(page: Page, name: str) -> None:
    """Save a screenshot once the status line is gone."""
    page.wait_for_selector("#status:empty", state="attached", timeout=30_000)
    page.wait_for_timeout(500)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.save(ROOT / "docs/pictures" / f"page-{name}.webp", quality=QUALITY, method=6)


def draw(page: Page) -> None:
    """Draw four pictures from a seed."""
    page.click("#tab-generate")
    page.fill("#seed", "11")
    page.fill("#count", "4")
    page.click("#draw-form button.main")
    page.locator("#drawn img").nth(3).wait_for(timeout=120_000)


def main() -> None:
    """Take the four pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000/", help="address of the server")
    url = parser.parse_args().url
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=SWITCHES
        )
        save(opened(browser, url, 1440, 900, "light"), "light")
        dark = opened(browser, url, 1440, 900, "dark")
        dark.click("#fill")
        dark.wait_for_selector("#status:has-text('Filled')", timeout=120_000)
        dark.click("#compare")
        save(dark, "dark")
        save(opened(browser, url, 390, 844, "light"), "phone")
        draw(dark)
        save(dark, "draw")
        browser.close()


if __name__ == "__main__":
    main()
