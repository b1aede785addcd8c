"""A real server on a free port, in a thread of the test's own process, with models that the fake engine runs."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
from PIL import Image

from engines.base import Engine
from engines.fake import FakeEngine
from engines.manifest import MANIFEST_FILE, Manifest
from service.core.settings import Settings
from tests.serving.waiting import wait_until

if TYPE_CHECKING:  # the units' tests do without the whole server
    from service.app import Service
    from service.web.server import DrainingServer

OpenEngine = Callable[[Path, Manifest], Engine]


def _manifest(name: str, task: str, **fields: Any) -> Manifest:
    pixels = ["batch", 3, "height", "width"]
    inputs: list[dict[str, Any]] = [{"name": "image", "dtype": "float32", "shape": pixels}]
    if task == "inpaint":
        inputs.append({"name": "mask", "dtype": "float32", "shape": ["batch", 1, "height", "width"]})
    values: dict[str, Any] = {
        "name": name,
        "version": 1,
        "task": task,
        "generator": "fake",
        "inputs": inputs,
        "output": {"name": "output", "dtype": "float32", "shape": pixels},
        "size": {"kind": "multiple", "multiple_of": 32, "sides": [64, 128]},
        "max_batch": 8,
        "precision": "fp32",
        "opset": 17,
        "onnx_sha256": "0" * 64,
        "checkpoint_sha256": "0" * 64,
        "licence": "none",
        "training_data": "none",
        "parity": {"bar_db": 45.0, "cases": []},
    }
    return Manifest.model_validate({**values, **fields})


def write_model(root: Path, manifest: Manifest) -> Path:
    directory = root / manifest.name / str(manifest.version)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MANIFEST_FILE).write_text(manifest.model_dump_json())
    return directory


@pytest.fixture
def models_dir(tmp_path: Path) -> Path:
    """A repository of `photos` (inpaint) and `facades` (translate, fixed 64²)."""
    root = tmp_path / "models"
    write_model(root, _manifest("photos", "inpaint"))
    fixed = {"kind": "fixed", "height": 64, "width": 64, "fit": "resize"}
    write_model(root, _manifest("facades", "translate", size=fixed))
    return root


@pytest.fixture
def fake_manifest() -> Callable[..., Manifest]:
    """A manifest for the fake engine: `fake_manifest(name, task, **fields)`."""
    return _manifest


@pytest.fixture
def add_model() -> Callable[..., Path]:
    """Publish one more fake model: `add_model(root, name, task, **manifest fields)`."""
    return lambda root, name, task, **fields: write_model(root, _manifest(name, task, **fields))


@dataclass
class Running:
    """A server that serves."""

    url: str
    service: Service
    server: DrainingServer
    thread: threading.Thread
    engines: list[FakeEngine]

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60.0, **options)

    def async_client(self, **options: Any) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        return httpx.AsyncClient(base_url=self.url, timeout=60.0, limits=limits, **options)

    @property
    def executed(self) -> int:
        """Samples that the engines were given, warm-up included."""
        return sum(engine.samples for engine in self.engines)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(60)
        assert not self.thread.is_alive(), "the server did not stop"


Serve = Callable[..., Running]


@contextmanager
def _running(settings: Settings, fake: Callable[[Manifest], FakeEngine], wait: bool) -> Iterator[Running]:
    from service.batching.local_backend import open_local_backend  # noqa: PLC0415 -- see above
    from service.web.server import DrainingServer  # noqa: PLC0415

    engines: list[FakeEngine] = []

    def open_model(_directory: Path, manifest: Manifest) -> Engine:
        engines.append(fake(manifest))
        return engines[-1]

    server = DrainingServer(settings, partial(open_local_backend, open_model=open_model))
    thread = threading.Thread(target=server.run, name="server")
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive())
        port = server.servers[0].sockets[0].getsockname()[1]
        running = Running(f"http://127.0.0.1:{port}", server.app.service, server, thread, engines)
        if wait:
            wait_until(lambda: not running.service.unready_reasons())
        yield running
    finally:
        server.should_exit = server.force_exit = True
        thread.join(60)


@pytest.fixture
def serve(models_dir: Path, tmp_path: Path) -> Iterator[Serve]:
    """Start servers: `serve(fake=FakeEngine, wait=True, **settings)`; they are stopped after the test."""
    with ExitStack() as stack:

        def start(
            fake: Callable[[Manifest], FakeEngine] = FakeEngine, *, wait: bool = True, **settings: Any
        ) -> Running:
            chosen = Settings.model_validate(
                {
                    "port": 0,
                    "models_dir": models_dir,
                    "results_dir": tmp_path / "results",
                    "engine_cache_dir": tmp_path / "cache",
                    "model_poll_s": 0.05,
                    "codec_threads": 2,
                    **settings,
                }
            )
            return stack.enter_context(_running(chosen, fake, wait))

        yield start


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


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
