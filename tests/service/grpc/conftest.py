"""A server with gRPC, and clients for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.serving.fake_models import write_photos_facades_and_faces
from tests.serving.grpc_client import GrpcClient
from tests.serving.local_server import Running, serving
from tests.serving.ports import free_port

Serve = Callable[..., Running]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server with gRPC and the tests' usual models as well as `faces`, which generates."""
    folder = tmp_path_factory.mktemp("server")
    models = write_photos_facades_and_faces(folder / "models")
    with serving(
        folder, models_dir=models, apis="open-inference", max_body_mb=2.0, max_memory_mb=64.0, grpc_port=free_port()
    ) as running:
        yield running
        running.stop()


@pytest.fixture
def client(server: Running) -> Iterator[GrpcClient]:
    with GrpcClient(server.grpc_address) as client:
        yield client


@pytest.fixture
def serve_grpc(serve: Serve) -> Iterator[Serve]:
    """Start servers as `serve` does, with gRPC; they are stopped before `serve` would stop them."""
    with ExitStack() as stack:

        def start(**settings: Any) -> Running:
            running = serve(**{"apis": "open-inference", "grpc_port": free_port(), **settings})
            stack.callback(running.stop)
            return running

        yield start


@pytest.fixture
def native(server: Running, photo: bytes, mask: bytes) -> bytes:
    """The answer of /v1/inpaint."""
    with server.client() as client:
        reply = client.post("/v1/inpaint", files={"image": photo, "mask": mask})
    assert reply.status_code == 200, reply.text
    return reply.content


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """The path for a test's key file."""
    return tmp_path / "keys.json"
