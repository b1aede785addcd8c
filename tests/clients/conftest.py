"""A server to be called as strangers' clients do: from a browser, and from code that is generated from its document.

These tests have an environment of their own (`make clients`) and are no part of `make test`.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.serving.waiting import wait_until

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "tests" / "data"


@pytest.fixture(scope="session")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of a fresh clone, and one that makes pictures from nothing, all for the fake engine."""
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
    """Where a server runs, that of the checkout's own environment."""
    folder = tmp_path_factory.mktemp("server")
    command = [ROOT / ".venv/bin/retouch", "serve", "--port=0", "--engine=fake"]
    folders = [f"--models-dir={models_dir}", f"--results-dir={folder / 'results'}"]
    log = folder / "log"
    with log.open("wb") as file:
        server = subprocess.Popen(
            [*command, *folders], stderr=file, env={**os.environ, "RETOUCH_ENGINE_CACHE_DIR": str(folder / "cache")}
        )

    def address() -> str:
        assert server.poll() is None, log.read_text("utf-8")
        lines = [json.loads(line) for line in log.read_text("utf-8").splitlines() if line.endswith("}")]
        return next((str(line["url"]) for line in lines if "url" in line), "")

    try:
        wait_until(address, 120)
        found = address()
        wait_until(lambda: httpx.get(f"{found}/readyz").status_code == 200)
        yield found
    finally:
        server.terminate()
        server.wait(60)


@pytest.fixture(scope="session")
def document(url: str) -> dict[str, object]:
    """The OpenAPI document of that server."""
    found: dict[str, object] = httpx.get(f"{url}/openapi.json").json()
    return found
