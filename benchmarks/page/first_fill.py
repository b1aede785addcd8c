"""Measures the seconds from `make serve` in a fresh clone to the first fill on the page, step by step.

    .venv-browser/bin/python -m benchmarks.page.first_fill PHOTOGRAPH [--shown page.png]

It clones this repository's HEAD, runs `make serve` there, opens the page as soon as the server listens, opens the
photograph, paints one stroke, and waits for its fill. The time includes the downloads of the installation.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from benchmarks.page.screenshots import SWITCHES
from tests.serving.ports import free_port

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 1200


class Steps:
    """The steps so far, each printed with the seconds since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._number = 0

    def done(self, what: str) -> None:
        """Print a finished step."""
        self._number += 1
        print(f"{self._number}. {time.monotonic() - self._began:6.1f} s  {what}", flush=True)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Run `make serve` in a clone on a free port; yields the address at once."""
    port = free_port()
    log = (folder / "make-serve.log").open("wb")
    environ = {**os.environ, "RETOUCH_PORT": str(port)}
    process = subprocess.Popen(
        ["make", "serve"], cwd=folder, env=environ, stderr=log, stdout=log, start_new_session=True
    )
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
        log.close()


def wait_for(url: str) -> None:
    """Wait until a server answers at an address."""
    port = int(url.rstrip("/").rpartition(":")[2])
    until = time.monotonic() + TIMEOUT_S
    while time.monotonic() < until:
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit(f"nothing listens at {url} after {TIMEOUT_S} s; see make-serve.log in the clone")


def fill(url: str, photograph: Path, steps: Steps) -> bytes:
    """Open the page and the photograph, paint a stroke, wait for the fill; returns a screenshot."""
    with sync_playwright() as playwright:
        chromium = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        page = playwright.chromium.launch(executable_path=chromium, args=SWITCHES).new_page()
        page.goto(url)
        expect(page.locator("#open-first")).to_be_visible()
        steps.done("the page is shown")
        with page.expect_file_chooser() as chooser:
            page.click("#open-first")
        chooser.value.set_files(photograph)
        expect(page.locator("#status")).to_contain_text("open", timeout=60_000)
        steps.done("the photograph is open")
        expect(page.locator("#fill")).to_have_text("Fill", timeout=TIMEOUT_S * 1000)
        steps.done("the model is there")
        box = page.locator("#surface").bounding_box() or {}
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x - 60, y)
        page.mouse.down()
        page.mouse.move(x + 60, y + 20, steps=12)
        page.mouse.up()
        expect(page.locator("#status")).to_contain_text("Filled", timeout=120_000)
        steps.done("a stroke is painted, let go and filled")
        return page.screenshot()


def main() -> None:
    """Clone, serve, fill, and print the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photograph", type=Path, help="photograph to fill a hole in")
    parser.add_argument("--shown", type=Path, help="file for a screenshot of the page after the fill")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "retouch"
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        steps = Steps()
        with served(clone) as url:
            wait_for(url)
            steps.done("`make serve` has installed what serving needs, and listens")
            shown = fill(url, chosen.photograph, steps)
    if chosen.shown:
        chosen.shown.write_bytes(shown)


if __name__ == "__main__":
    main()
