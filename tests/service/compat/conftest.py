"""A server with all foreign APIs, and pictures in base64."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator

import httpx
import numpy as np
import pytest
from PIL import Image

from service.core.settings import FOREIGN_APIS
from tests.serving.fake_models import write_photos_facades_and_faces
from tests.serving.local_server import Running, serving

ALL = ",".join(FOREIGN_APIS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server with all foreign APIs and the tests' usual models as well as `faces`, which generates."""
    folder = tmp_path_factory.mktemp("server")
    models = write_photos_facades_and_faces(folder / "models")
    with serving(folder, models_dir=models, apis=ALL, max_body_mb=2.0) as running:
        yield running


@pytest.fixture
def client(server: Running) -> Iterator[httpx.Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def native(client: httpx.Client, photo: bytes, mask: bytes) -> Callable[..., bytes]:
    """Return the answer of /v1/inpaint: `native(image=..., mask=..., **fields)`."""

    def fill(image: bytes = photo, mask: bytes = mask, **fields: str) -> bytes:
        reply = client.post("/v1/inpaint", files={"image": image, "mask": mask}, data=fields)
        assert reply.status_code == 200, reply.text
        return reply.content

    return fill


@pytest.fixture
def alpha_mask(mask: bytes) -> bytes:
    """The mask in the form of OpenAI's clients: alpha 0 is filled."""
    hole = np.asarray(Image.open(io.BytesIO(mask)))
    pixels = np.zeros((*hole.shape, 4), np.uint8)
    pixels[:, :, 3] = 255 - hole
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def in_base64() -> Callable[[bytes], str]:
    """Encode a file for JSON."""
    return lambda data: base64.b64encode(data).decode("ascii")


@pytest.fixture
def pair(photo: bytes, mask: bytes, in_base64: Callable[[bytes], str]) -> dict[str, str]:
    """`image` and `mask` for JSON."""
    return {"image": in_base64(photo), "mask": in_base64(mask)}
