"""Servers for one test or for a module, and requests to send to them."""

from __future__ import annotations

import gc
import io
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks.harness.otlp_receiver import OtlpReceiver
from engines.fake import FakeEngine
from engines.manifest import Manifest
from tests.serving.backing.postgres_server import PostgresCluster, running_postgres
from tests.serving.fake_models import fake_manifest, write_model, write_photos_and_facades
from tests.serving.local_server import Running, Serve, serving
from tests.serving.ports import free_port


@pytest.fixture
def no_collections() -> Iterator[None]:
    """Disable the garbage collector, so that reference cycles are not freed."""
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def models_dir(tmp_path: Path) -> Path:
    """A repository of `photos` (inpaint) and `facades` (translate, fixed 64²)."""
    return write_photos_and_facades(tmp_path / "models")


@pytest.fixture(name="fake_manifest")
def _fake_manifest() -> Callable[..., Manifest]:
    """A manifest for the fake engine: `fake_manifest(name, task, **fields)`."""
    return fake_manifest


@pytest.fixture
def add_model() -> Callable[..., Path]:
    """Write another fake model: `add_model(root, name, task, **manifest fields)`."""
    return lambda root, name, task, **fields: write_model(root, fake_manifest(name, task, **fields))


@pytest.fixture
def serve(models_dir: Path, tmp_path: Path) -> Iterator[Serve]:
    """Start servers: `serve(fake=FakeEngine, wait=True, **settings)`; they are stopped after the test."""
    with ExitStack() as stack:

        def start(fake: Callable[[Manifest], FakeEngine] = FakeEngine, **settings: Any) -> Running:
            return stack.enter_context(serving(tmp_path, fake, **{"models_dir": models_dir, **settings}))

        yield start


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server with the tests' default settings, for all tests of a module that only send requests."""
    folder = tmp_path_factory.mktemp("server")
    with serving(folder, models_dir=write_photos_and_facades(folder / "models")) as running:
        yield running


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    """A collector of spans; the servers export to it without the usual delay."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    with OtlpReceiver() as receiver:
        yield receiver


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def photo() -> bytes:
    """A PNG of 64×64 random pixels, the same every time."""
    return png(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))


@pytest.fixture
def mask() -> bytes:
    """A PNG of 64×64 with a white square of 16×16 in the middle."""
    pixels = np.zeros((64, 64), np.uint8)
    pixels[24:40, 24:40] = 255
    return png(pixels)


@pytest.fixture
def files(photo: bytes, mask: bytes) -> dict[str, tuple[str, bytes, str]]:
    """The parts of an inpaint request, for httpx."""
    return {"image": ("photo.png", photo, "image/png"), "mask": ("mask.png", mask, "image/png")}


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresCluster]:
    """A PostgreSQL server that all tests share."""
    with running_postgres() as cluster:
        yield cluster


@pytest.fixture(name="free_port")
def _free_port() -> int:
    """Return a port on which no process listens."""
    return free_port()
