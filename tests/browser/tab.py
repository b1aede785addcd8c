"""A browser tab with the page: input by mouse, pen, fingers and keyboard, and the page's output."""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import CDPSession, Dialog, Download, Page, expect

Point = tuple[float, float]
"""A point (x, y) in the picture, in its pixels."""
PICTURES = Path(__file__).parents[1] / "data"


class Tab:
    """A tab with the page."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self._cdp: CDPSession | None = None

    @property
    def cdp(self) -> CDPSession:
        """The Chrome DevTools Protocol, for pens, several fingers and slow networks."""
        self._cdp = self._cdp or self.page.context.new_cdp_session(self.page)
        return self._cdp

    def go(self, key: str = "", *, again: bool = False) -> Tab:
        """Load the page and enter `key`, if not empty; `again` expects that the page then asks for a key again."""
        self.page.goto(self.url)
        if key:
            self.page.fill("#key", key)
            self.page.press("#key", "Enter")
        if again:
            expect(self.page.locator("#key-reason")).not_to_be_empty()
        else:
            self.page.wait_for_selector("html[data-ready]", timeout=60_000)
        return self

    def leave(self) -> Dialog:
        """Close the tab as its user does; returns the browser's question whether to leave the page."""
        with self.page.expect_event("dialog") as asked:
            self.page.close(run_before_unload=True)
        assert asked.value.type == "beforeunload"
        return asked.value

    def limit_upload(self, bytes_per_s: int) -> None:
        """Let the network carry no more than this from the page to the server."""
        slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": bytes_per_s}
        self.cdp.send("Network.emulateNetworkConditions", slow)

    def open(self, *files: Path | dict[str, object]) -> Tab:
        """Open photographs and wait until the page shows them."""
        self.page.set_input_files("#pick-pictures", list(files))
        expect(self.page.locator("#empty")).to_be_hidden(timeout=60_000)
        expect(self.page.locator("#status")).to_contain_text("open", timeout=60_000)
        return self

    def collect(self) -> Tab:
        """Choose the mode that fills only on request."""
        self.page.uncheck("#instant")
        return self

    def brush(self, size: int) -> None:
        """Set the brush's size with the slider, which is logarithmic."""
        self.page.fill("#size", str(round(200 * math.log(size) / math.log(1000)) / 2))
        expect(self.page.locator("#size-shown")).to_have_text(str(size))

    def on_screen(self, point: Point) -> Point:
        """Convert a point in the picture to screen coordinates; the whole picture must be in view."""
        box = self.page.locator("#surface").bounding_box()
        label = self.page.locator("#surface").get_attribute("aria-label") or ""
        width, height = map(int, re.findall(r"(\d+) by (\d+) pixels$", label)[0])
        scale = min(2.0, (box["width"] - 32) / width, (box["height"] - 32) / height)
        left = box["x"] + (box["width"] - width * scale) / 2
        top = box["y"] + (box["height"] - height * scale) / 2
        return left + point[0] * scale, top + point[1] * scale

    def drag(self, points: Sequence[Point], button: str = "left") -> None:
        """Drag the mouse along points of the picture."""
        self.page.mouse.move(*self.on_screen(points[0]))
        self.page.mouse.down(button=button)
        for point in points[1:]:
            self.page.mouse.move(*self.on_screen(point), steps=4)
        self.page.mouse.up(button=button)

    def pen(self, points: Sequence[Point], force: float = 0.5, buttons: int = 1) -> None:
        """Drag a pen along points of the picture."""
        places = [self.on_screen(point) for point in points]
        button = "left" if buttons == 1 else "none"

        def send(kind: str, place: Point, held: int) -> None:
            event = {"type": kind, "x": place[0], "y": place[1], "button": button, "buttons": held, "force": force}
            self.cdp.send("Input.dispatchMouseEvent", {**event, "pointerType": "pen", "clickCount": 1})

        send("mousePressed", places[0], buttons)
        for place in places[1:]:
            send("mouseMoved", place, buttons)
        send("mouseReleased", places[-1], 0)

    def touch(self, *steps: Sequence[Point]) -> None:
        """Put fingers on the screen, move them from step to step, and lift them; a step has a point for each finger."""
        for i, fingers in enumerate(steps):
            places = [self.on_screen(point) for point in fingers]
            points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(places)]
            self.cdp.send(
                "Input.dispatchTouchEvent", {"type": "touchMove" if i else "touchStart", "touchPoints": points}
            )
        self.cdp.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    def drop(self, file: Path, place: Point) -> None:
        """Drop a file or a folder at a point of the screen."""
        carried = {"items": [], "files": [str(file.resolve())], "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            self.cdp.send("Input.dispatchDragEvent", {"type": kind, "x": place[0], "y": place[1], "data": carried})

    def fill(self) -> None:
        """Press Fill and wait for the fill."""
        self.page.click("#fill")
        self.filled()

    def paint_and_fill(self, file: dict[str, object], points: Sequence[Point]) -> NDArray[np.bool_]:
        """Open a file, paint a line and fill; return the mask that was painted."""
        self.open(file).collect()
        self.brush(20)
        self.drag(points)
        mask = self.mask()
        self.fill()
        return mask

    def filled(self) -> None:
        """Wait until a fill has arrived."""
        expect(self.page.locator("#status")).to_contain_text("Filled", timeout=120_000)
        expect(self.page.locator("#busy")).to_be_hidden()

    def says(self, text: str) -> None:
        """Wait until the status line contains the text."""
        expect(self.page.locator("#status")).to_contain_text(text, timeout=60_000)

    def choose(self, menu: str, entry: str) -> None:
        """Choose an entry of a menu."""
        self.page.click(f"#{menu} summary")
        self.page.click(f"#{menu} {entry}")

    def download(self, menu: str, entry: str) -> Download:
        """Choose an entry of a menu that saves a file; returns the download."""
        with self.page.expect_download(timeout=120_000) as info:
            self.choose(menu, entry)
        return info.value

    def mask(self) -> NDArray[np.bool_]:
        """Save the mask and return it: H×W, True = fill."""
        self.page.click("#mask-menu summary")
        with self.page.expect_event("download", timeout=60_000) as info:
            self.page.click('#mask-menu [data-mask="export"]')
        picture = Image.open(info.value.path())
        assert picture.mode == "L"
        return np.asarray(picture) > 127

    def thumbnail(self, name: str) -> NDArray[np.uint8]:
        """Return the pixels of a photograph's thumbnail in the film strip."""
        script = "name => document.querySelector(`#strip [aria-label='${name}'] canvas`).toDataURL()"
        data = self.page.evaluate(script, name).partition(",")[2]
        return np.asarray(Image.open(io.BytesIO(base64.b64decode(data))))

    def saved(self, kind: str = "png") -> Image.Image:
        """Save the picture and return it."""
        picture = Image.open(self.download("save-menu", f'[data-save="{kind}"]').path())
        picture.load()
        return picture


def encoded(
    pixels: NDArray[np.uint8] | Image.Image, name: str, kind: str = "PNG", **options: object
) -> dict[str, object]:
    """Encode a picture as a file for `Tab.open`."""
    buffer = io.BytesIO()
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(buffer, kind, **options)
    return {"name": name, "mimeType": f"image/{kind.lower()}", "buffer": buffer.getvalue()}


def noise(width: int, height: int, channels: int = 3, seed: int = 0) -> NDArray[np.uint8]:
    """Return random pixels, which any lossy step would change."""
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
