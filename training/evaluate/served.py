"""The results of a running server, for measuring a model as it is served."""

from __future__ import annotations

import io
import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from training.errors import ServerRefused
from training.evaluate.cases import Case, Pixels
from training.evaluate.painters import Painter

_TIMEOUT_S = 300.0


class ServedPainter(Painter):
    """Fills cases by `POST /v1/inpaint` with `strategy=auto`; pictures are sent as PNG, which is lossless.

    Raises:
        ServerRefused: the server cannot be reached or answers with an error; the message has its reason.
    """

    label = "served"

    def __init__(self, address: str, model: str) -> None:
        """Keep the server's address, such as http://127.0.0.1:8000, and the model as `name/version`."""
        self._url, self._model = f"{address.rstrip('/')}/v1/inpaint", model

    def paint(self, case: Case) -> Pixels:
        hole = np.zeros(case.source.shape[:2], np.bool_) if case.hole is None else case.hole
        files = {"image": _png(case.source), "mask": _png(hole.astype(np.uint8) * 255)}
        body, kind = multipart({"model": self._model, "format": "png", "save": "false"}, files)
        request = urllib.request.Request(self._url, body, {"Content-Type": kind})  # noqa: S310 (checked when sent)
        with Image.open(io.BytesIO(self._send(request))) as image:
            return np.asarray(image.convert("RGB"), np.uint8)

    def close(self) -> None:
        pass

    def _send(self, request: urllib.request.Request) -> bytes:
        if not request.full_url.startswith(("http://", "https://")):
            raise ServerRefused(f"{request.full_url}: give the server's address as http://HOST:PORT")
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as reply:  # noqa: S310 (http, as checked above)
                answer: bytes = reply.read()
                return answer
        except urllib.error.HTTPError as error:
            raise ServerRefused(f"{request.full_url} answered {error.code}: {_reason(error.read())}") from error
        except OSError as error:
            raise ServerRefused(
                f"{request.full_url} cannot be reached ({error}); is `retouch serve` running?"
            ) from error


def multipart(fields: Mapping[str, str], files: Mapping[str, bytes]) -> tuple[bytes, str]:
    """Encode a form with text fields and PNG files; returns the body and its content type."""
    boundary = uuid.uuid4().hex
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    for name, data in files.items():
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{name}.png"\r\n'
        parts.append(f"{head}Content-Type: image/png\r\n\r\n".encode() + data + b"\r\n")
    return b"".join([*parts, f"--{boundary}--\r\n".encode()]), f"multipart/form-data; boundary={boundary}"


def _png(pixels: Any) -> bytes:
    target = io.BytesIO()
    Image.fromarray(pixels).save(target, "PNG", compress_level=1)
    return target.getvalue()


def _reason(body: bytes) -> str:
    """Return the problem document's detail, or the first characters of the body."""
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, LookupError, TypeError):
        return body[:200].decode(errors="replace")
