"""The work of a peer: Retouch's codec, engine and composite; imported in the peer's own environment."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import simplejpeg

MAX_BATCH = 8
TINY_BATCH_S = 0.008
ROOT = Path(__file__).resolve().parent.parent.parent


def model_name() -> str:
    """Return the model, `tiny` or `photos`, that the benchmark chose."""
    return os.environ["PEER_MODEL"]


def port() -> int:
    """Return the port that the benchmark chose."""
    return int(os.environ["PEER_PORT"])


class Tiny:
    """A model that sleeps for the time of a batch and returns the negatives."""

    def __init__(self) -> None:
        self.executed = Path(os.environ["PEER_COUNT"])

    def __call__(self, pictures: list[np.ndarray], _masks: list[np.ndarray]) -> list[np.ndarray]:
        with self.executed.open("ab") as file:  # one byte per computed picture, to count them
            file.write(b"x" * len(pictures))
        time.sleep(TINY_BATCH_S)
        return list(255 - np.stack(pictures))


class Photos:
    """The shipped inpainting model on OpenVINO, computed as in Retouch: both halves of a batch in parallel."""

    def __init__(self) -> None:
        import openvino as ov  # noqa: PLC0415 -- not needed for the tiny model

        core = ov.Core()
        precision = os.environ.get("PEER_PRECISION", "f32")
        config = {"INFERENCE_PRECISION_HINT": precision}
        path = sorted((ROOT / "models/photos").iterdir(), key=lambda version: int(version.name))[-1] / "model.onnx"
        alone = core.compile_model(str(path), "CPU", {**config, "PERFORMANCE_HINT": "LATENCY"})
        halves = core.compile_model(str(path), "CPU", {**config, "NUM_STREAMS": 2})
        self._alone, self._halves = alone.create_infer_request(), [halves.create_infer_request() for _ in range(2)]
        self._tensor = ov.Tensor
        for rows in (1, MAX_BATCH):
            self([np.zeros((256, 256, 3), np.uint8)] * rows, [np.ones((256, 256), np.bool_)] * rows)

    def __call__(self, pictures: list[np.ndarray], masks: list[np.ndarray]) -> list[np.ndarray]:
        image = np.stack(pictures).transpose(0, 3, 1, 2) * np.float32(1 / 255)
        hole = np.stack(masks)[:, None].astype(np.float32)
        feed = {"image": np.ascontiguousarray(image), "mask": hole}
        output = self._output(feed)
        filled = np.rint(np.clip(output, 0, 1) * np.float32(255)).astype(np.uint8).transpose(0, 2, 3, 1)
        return [np.where(m[:, :, None], f, p) for f, p, m in zip(filled, pictures, masks, strict=True)]

    def _output(self, feed: dict[str, np.ndarray]) -> np.ndarray:
        half, odd = divmod(len(feed["image"]), 2)
        if not half:
            return self._alone.infer(feed, share_inputs=True, share_outputs=True)[0]
        output = np.empty_like(feed["image"])
        for number, request in enumerate(self._halves):
            rows = slice(number * half, (number + 1) * half)
            request.set_output_tensor(self._tensor(output[rows], shared_memory=True))
            request.start_async({name: array[rows] for name, array in feed.items()}, share_inputs=True)
        for request in self._halves:
            request.wait()
        if odd:
            last = {name: array[-1:] for name, array in feed.items()}
            output[-1:] = self._alone.infer(last, share_inputs=True, share_outputs=True)[0]
        return output


def load() -> Any:
    """Load the model that the benchmark chose."""
    return Tiny() if model_name() == "tiny" else Photos()


def decode(photo: bytes, mask: bytes | None) -> tuple[np.ndarray, np.ndarray]:
    """Decode the RGB picture and the hole; an empty hole for `tiny`, which takes no mask."""
    picture = simplejpeg.decode_jpeg(photo)
    if not mask:
        return picture, np.zeros((1, 1), np.bool_)
    return picture, cv2.imdecode(np.frombuffer(mask, np.uint8), cv2.IMREAD_GRAYSCALE) >= 128  # type: ignore[operator, return-value]


def encode(picture: np.ndarray) -> bytes:
    """Encode as JPEG of quality 90."""
    return simplejpeg.encode_jpeg(np.ascontiguousarray(picture), quality=90, colorsubsampling="444")
