"""Measures the time from a pointer's move to the end of the next frame, while a stroke is painted on a large picture.

    .venv-browser/bin/python -m benchmarks.page.frame_times [--url http://127.0.0.1:8000/]

It runs in the environment of `make browser`, against an idle server. The browser draws in software, as on a machine
without a GPU.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

SIZES = {12: (4000, 3000), 50: (8660, 5773)}
"""Megapixels, and width and height in pixels."""
MOVES = 500
SWITCHES = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
MEASURE = """() => {
    window.frameTimes = [];
    document.querySelector('#stage').addEventListener('pointermove', event => requestAnimationFrame(() => {
        const channel = new MessageChannel();  // its message comes once the frame is drawn
        channel.port1.onmessage = () => window.frameTimes.push(performance.now() - event.timeStamp);
        channel.port2.postMessage(0);
    }), true);
}"""


def photograph(width: int, height: int) -> bytes:
    """Return a JPEG with gradients and texture."""
    random = np.random.default_rng(0)
    coarse = Image.fromarray(random.integers(0, 256, (height // 64, width // 64, 3), np.uint8))
    buffer = io.BytesIO()
    coarse.resize((width, height), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def paint(page: Page, moves: int) -> list[float]:
    """Paint one stroke in a spiral, and return the time of each move in ms."""
    box = page.locator("#surface").bounding_box()
    if box is None:
        raise SystemExit("the page shows no picture")
    x, y, reach = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, min(box["width"], box["height"]) * 0.35
    page.evaluate(MEASURE)
    page.mouse.move(x, y)
    page.mouse.down()
    for i in range(moves):
        angle, radius = i * 0.12, reach * i / moves
        page.mouse.move(x + radius * math.cos(angle), y + radius * math.sin(angle))
    page.mouse.up()
    page.wait_for_timeout(500)
    found: list[float] = page.evaluate("window.frameTimes")
    return found


def measured(browser: Browser, url: str, megapixels: int) -> dict[str, float]:
    """Open a picture of that size, paint on it, and summarise the times of the moves."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.goto(url)
    page.wait_for_selector("html[data-ready]", timeout=120_000)
    page.uncheck("#instant")
    file = {"name": "large.jpg", "mimeType": "image/jpeg", "buffer": photograph(*SIZES[megapixels])}
    page.set_input_files("#pick-pictures", [file])
    page.wait_for_selector("#empty", state="hidden", timeout=120_000)
    page.wait_for_timeout(2000)
    times = paint(page, MOVES)
    page.close()
    p50, p95, p99 = (float(np.percentile(times, share)) for share in (50, 95, 99))
    return {
        "megapixels": megapixels,
        "moves": len(times),
        "p50_ms": p50,
        "p95_ms": p95,
        "p99_ms": p99,
        "max_ms": max(times),
    }


def main() -> None:
    """Measure both sizes and print a line of JSON for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000/", help="address of the server")
    arguments = parser.parse_args()
    with sync_playwright() as playwright:
        chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=SWITCHES)
        for megapixels in SIZES:
            print(
                json.dumps(
                    {name: round(value, 1) for name, value in measured(browser, arguments.url, megapixels).items()}
                )
            )
        browser.close()


if __name__ == "__main__":
    main()
