"""Servers and tabs for the tests of the page in Chromium.

These tests have their own environment (`make browser`) and are not part of `make test`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.tab import Tab, encoded, noise
from tests.serving.served_process import ServedProcess

ROOT = Path(__file__).parents[2]
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
SWITCHES = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    "--host-resolver-rules=MAP images.example 127.0.0.1",
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
Serve = Callable[..., ServedProcess]
SIDE = 320
"""Side of the square picture of `blank`, in pixels."""
SCREENS = {"desktop": (1440, 900), "phone": (390, 844)}


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield found
        found.close()


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a server that computes the shipped models with its default engine."""
    command = [ROOT / ".venv/bin/retouch", "serve"]
    folder = tmp_path_factory.mktemp("server")
    cache = os.environ.get("BROWSER_CACHE", str(folder / "cache"))
    with ServedProcess(folder, command=command, engine="auto", engine_cache_dir=cache) as served:
        yield f"{served.url}/"
        served.terminate()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Start servers with the fake engine and a test's settings."""
    with ExitStack() as stack:

        def start(**settings: object) -> ServedProcess:
            command = [ROOT / ".venv/bin/retouch", "serve"]
            return stack.enter_context(ServedProcess(tmp_path, command=command, **settings))

        yield start


@pytest.fixture(scope="session")
def all_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped models, a diverse inpainting model and one that generates, all for the fake engine."""
    root = tmp_path_factory.mktemp("models")
    for shipped in (ROOT / "models").iterdir():
        (root / shipped.name).symlink_to(shipped)
    fills, translates = (_manifest(name) for name in ("photos", "facades"))
    latent = {"name": "latent", "dtype": "float32", "shape": ["batch", 8]}
    size = {"kind": "fixed", "height": 64, "width": 64}
    _write(root, {**fills, "name": "diverse", "version": 1, "inputs": [*fills["inputs"], latent]})
    _write(root, {**translates, "name": "faces", "version": 1, "task": "generate", "inputs": [latent], "size": size})
    return root


def _manifest(name: str) -> dict[str, list[object]]:
    found: dict[str, list[object]] = json.loads(
        next((ROOT / "models" / name).glob("*/manifest.json")).read_text("utf-8")
    )
    return found


def _write(root: Path, manifest: dict[str, object]) -> None:
    folder = root / str(manifest["name"]) / str(manifest["version"])
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))


OpenTab = Callable[..., Tab]


@pytest.fixture
def open_tab(browser: Browser) -> Iterator[OpenTab]:
    """Open tabs; a console error, a policy violation or a request to another address fails the test."""
    wrong: list[str] = []
    with ExitStack() as stack:

        def opened(url: str, *, expected: str = "", key: str = "", again: bool = False, **options: object) -> Tab:
            context = stack.enter_context(
                browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})
            )
            page = context.new_page()
            allowed = [word for word in expected.split("|") if word]

            def note(text: str) -> None:
                if not any(word in text for word in allowed):
                    wrong.append(text)

            page.on("console", lambda message: note(message.text) if message.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: note(f"{error}\n{error.stack}"))
            page.on("request", lambda request: elsewhere(request.url, url) and note(f"went to {request.url}"))
            page.add_init_script(
                "addEventListener('securitypolicyviolation', e => console.error('CSP', e.effectiveDirective))"
            )
            return Tab(page, url).go(key, again=again)

        yield opened
    assert wrong == []


def elsewhere(address: str, home: str) -> bool:
    """Whether an address is outside the page's own, which begin with the page's URL."""
    return not address.startswith((home, "blob:"))


@pytest.fixture
def tab(open_tab: OpenTab, url: str) -> Tab:
    """A tab with the page of the server `url`."""
    return open_tab(url)


@pytest.fixture(params=SCREENS)
def blank(open_tab: OpenTab, url: str, request: pytest.FixtureRequest) -> Tab:
    """A tab with a small square of noise, in the mode that fills only on request."""
    width, height = SCREENS[request.param]
    opened = open_tab(url, has_touch=True, viewport={"width": width, "height": height})
    opened.open(encoded(noise(SIDE, SIDE), "noise.png")).collect().brush(20)
    return opened
