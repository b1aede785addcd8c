"""A server for third-party clients: a browser, and code generated from the OpenAPI document.

These tests have their own environment (`make clients`) and are not part of `make test`.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.serving.served_process import ServedProcess

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "tests" / "data"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
SWITCHES = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@pytest.fixture(scope="session")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped models and one that generates, all for the fake engine."""
    root = tmp_path_factory.mktemp("models")
    manifest = json.loads(next((ROOT / "models/facades").glob("*/manifest.json")).read_text("utf-8"))
    for shipped in (ROOT / "models").iterdir():
        (root / shipped.name).symlink_to(shipped)
    latent = {"name": "latent", "dtype": "float32", "shape": ["batch", 8]}
    size = {"kind": "fixed", "height": 64, "width": 64}
    faces = {**manifest, "name": "faces", "version": 1, "task": "generate", "inputs": [latent], "size": size}
    (root / "faces/1").mkdir(parents=True)
    (root / "faces/1/manifest.json").write_text(json.dumps(faces))
    return root


@pytest.fixture(scope="session")
def url(models_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a server that runs in the checkout's environment."""
    command = [ROOT / ".venv/bin/retouch", "serve"]
    with ServedProcess(tmp_path_factory.mktemp("server"), command=command, models_dir=models_dir) as served:
        yield served.url
        served.terminate()


@pytest.fixture(scope="session")
def document(url: str) -> dict[str, object]:
    """The server's OpenAPI document."""
    found: dict[str, object] = httpx.get(f"{url}/openapi.json").json()
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=SWITCHES)
        yield found
        found.close()


@contextmanager
def origin_of(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve pages of another origin on a free port until the block ends; yields the origin's URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()
