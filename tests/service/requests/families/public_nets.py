"""Exported models with the public nets that they were made from, and requests to a server."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from engines.manifest import Manifest
from service.imaging.pasting.areas import FEATHER
from tests.serving.image_files import png

ROOT = Path(__file__).resolve().parents[4]
Serve = Callable[..., Any]


def shared(name: str) -> Path:
    path = (ROOT / "../shared" / name).resolve()
    if not path.is_file():
        pytest.skip(f"needs ../shared/{name}, which is not part of the repository")
    return path


@dataclass(frozen=True)
class Exported:
    """An exported model, and the public net with inputs and output of the tensor contract."""

    name: str
    manifest: Manifest
    reference: Callable[..., NDArray[Any]]


def golden(name: str) -> Mapping[str, NDArray[Any]]:
    with np.load(shared(f"golden/{name}.npz")) as arrays:
        return dict(arrays)


def levels(output: NDArray[Any]) -> NDArray[Any]:
    """Convert C×H×W in [0, 1] to H×W×C in 0..255, clamped, not rounded."""
    return np.clip(output, 0, 1).transpose(1, 2, 0) * 255


def rounded(image: NDArray[Any]) -> NDArray[np.float32]:
    """Round values in [0, 1] to multiples of 1/255, as in an 8-bit picture."""
    return (np.rint(image * 255) / 255).astype(np.float32)


def as_png(image: NDArray[Any]) -> bytes:
    """Encode C×H×W in [0, 1] as an 8-bit PNG."""
    return png(np.rint(levels(image)).astype(np.uint8))


def mask_png(mask: NDArray[Any]) -> bytes:
    """Encode H×W (1 = fill) as an 8-bit PNG."""
    return png((mask[:, :, None] * 255).astype(np.uint8))


def opened(body: bytes) -> NDArray[Any]:
    return np.atleast_3d(np.asarray(Image.open(io.BytesIO(body)))).astype(int)


def asked(client: httpx.Client, task: str, files: Mapping[str, bytes], **fields: object) -> httpx.Response:
    texts = {name: (None, str(value)) for name, value in {"model": "golden", **fields}.items()}
    reply = client.post(f"/v1/{task}", files={**files, **texts})
    assert reply.status_code == 200, reply.text
    return reply


def beyond_the_seam(mask: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the mask's pixels beyond the seam, where the fill is not blended."""
    distance = cv2.distanceTransform(mask.astype(np.uint8), cv2.DIST_L2, 5)
    return np.asarray(distance > FEATHER + 1)
