"""A server with the shipped models, for clients of other servers' APIs.

These tests have their own environment (`make compat`) and are not part of `make test`.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from PIL import Image, ImageOps

from tests.serving.ports import free_port
from tests.serving.served_process import ServedProcess

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "tests" / "data"


@pytest.fixture(scope="session")
def grpc_address() -> str:
    """Host and port of the gRPC server."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory, grpc_address: str) -> Iterator[str]:
    """URL of a server that runs in the checkout's environment, with a real engine."""
    command = [ROOT / ".venv/bin/retouch", "serve"]
    port = grpc_address.rpartition(":")[2]
    with ServedProcess(tmp_path_factory.mktemp("server"), command=command, engine="auto", grpc_port=port) as served:
        yield served.url
        served.terminate()


@pytest.fixture(scope="session")
def shipped() -> list[str]:
    """Names of the shipped models."""
    return sorted(path.name for path in (ROOT / "models").iterdir())


@pytest.fixture(scope="session")
def photo() -> bytes:
    """A photograph as PNG."""
    file = io.BytesIO()
    Image.open(PICTURES / "dress.jpg").convert("RGB").save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="session")
def mask() -> bytes:
    """The photograph's mask: white is filled."""
    return (PICTURES / "dress_mask.png").read_bytes()


@pytest.fixture(scope="session")
def alpha_mask(mask: bytes) -> bytes:
    """The mask in the form of OpenAI's clients: transparent is filled."""
    hole = Image.open(io.BytesIO(mask)).convert("L").point(lambda value: 255 if value >= 128 else 0)
    whole = Image.new("RGBA", hole.size)
    whole.putalpha(ImageOps.invert(hole))
    file = io.BytesIO()
    whole.save(file, "PNG")
    return file.getvalue()


@pytest.fixture(scope="session")
def native(url: str, photo: bytes, mask: bytes) -> bytes:
    """The answer of /v1/inpaint."""
    reply = httpx.post(f"{url}/v1/inpaint", files={"image": photo, "mask": mask}, timeout=60)
    assert reply.status_code == 200, reply.text
    return reply.content


@pytest.fixture(scope="session")
def in_base64() -> Callable[[bytes], str]:
    """Encode a file for JSON."""
    return lambda data: base64.b64encode(data).decode("ascii")
