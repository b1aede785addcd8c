"""Compares JPEG on the GPU (nvImageCodec) with CPU threads (simplejpeg, OpenCV), from and to pixels on the host.

    python -m benchmarks.gpu.jpeg [--images DIR] [--sides 256 512 1024 2048] [--batches 1 8 32] [--json jpeg.json]

Images/s of each size and batch, decoding and encoding (quality 90, 4:4:4, the service's defaults). The service
composites on the host, so pictures that the GPU decodes are copied to the host, and pictures that it encodes to the
GPU; decoding without the copy is measured too. `busy`: the same while a stream of matrix products fills the GPU, as an
engine does, and the slowdown of these products. Levels: largest and mean difference from libjpeg-turbo's pixels.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import simplejpeg
from nvidia import nvimgcodec

from benchmarks.gpu.matrix_products import MatrixProducts

QUALITY = 90
_SECONDS = 0.25
Work = Callable[[], Any]


class Gpu:
    """nvImageCodec with its default backends: the hardware decoder if there is one."""

    def __init__(self) -> None:
        self.decoder = nvimgcodec.Decoder(device_id=0)
        self.encoder = nvimgcodec.Encoder(device_id=0)
        self.params = nvimgcodec.EncodeParams(
            quality_type=nvimgcodec.QualityType.QUALITY,
            quality_value=QUALITY,
            chroma_subsampling=nvimgcodec.ChromaSubsampling.CSS_444,
        )

    def decode_only(self, files: Sequence[bytes]) -> list[Any]:
        """Decode to pixels in device memory."""
        return list(self.decoder.decode(list(files)))

    def decode(self, files: Sequence[bytes]) -> list[np.ndarray]:
        """Decode to pixels on the host."""
        return [np.asarray(image.cpu()) for image in self.decode_only(files)]

    def encode(self, pictures: Sequence[np.ndarray]) -> list[bytes]:
        """Encode pixels on the host to files on the host."""
        images = [image.cuda() for image in nvimgcodec.as_images(list(pictures))]
        return [bytes(stream) for stream in self.encoder.encode(images, "jpeg", params=self.params)]


class Threads:
    """A CPU library on a pool of threads, one picture per task."""

    def __init__(
        self, decode: Callable[[bytes], np.ndarray], encode: Callable[[np.ndarray], bytes], count: int
    ) -> None:
        self._one_decode, self._one_encode, self._pool = decode, encode, ThreadPoolExecutor(count)

    def decode(self, files: Sequence[bytes]) -> list[np.ndarray]:
        """Decode to pixels on the host."""
        return list(self._pool.map(self._one_decode, files))

    def encode(self, pictures: Sequence[np.ndarray]) -> list[bytes]:
        """Encode to files on the host."""
        return list(self._pool.map(self._one_encode, pictures))


def opencv_encode(pixels: np.ndarray) -> bytes:
    """Encode with OpenCV, which takes BGR and writes 4:4:4 only on request."""
    flags = [cv2.IMWRITE_JPEG_QUALITY, QUALITY, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444]
    _, data = cv2.imencode(".jpg", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), flags)
    return data.tobytes()


def opencv_decode(data: bytes) -> np.ndarray:
    """Decode to RGB with OpenCV."""
    return cv2.cvtColor(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def libjpeg_encode(pixels: np.ndarray) -> bytes:
    """Encode as service/imaging/files/codec.py does."""
    return simplejpeg.encode_jpeg(pixels, QUALITY, "RGB", "444")


def per_second(work: Work, batch: int) -> float:
    """Return images per second: the median of runs of a quarter of a second in total, after a warm-up."""
    work()
    taken: list[float] = []
    while sum(taken) < _SECONDS or len(taken) < 3:
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return batch / statistics.median(taken)


def pictures(folder: Path | None, side: int) -> list[np.ndarray]:
    """Read photographs of the folder, or make blurred noise, at side × side."""
    files = sorted(folder.glob("*.jpg"))[:8] if folder else []
    rng = np.random.default_rng(0)
    loaded = [opencv_decode(path.read_bytes()) for path in files] or [
        cv2.GaussianBlur(rng.integers(0, 256, (side, side, 3), np.uint8), (0, 0), 3) for _ in range(4)
    ]
    return [cv2.resize(picture, (side, side), interpolation=cv2.INTER_AREA) for picture in loaded]


def measure(gpu: Gpu, pools: dict[str, Threads], images: list[np.ndarray], batch: int) -> dict[str, float]:
    """Measure images/s of every codec at one size and batch."""
    own = [images[number % len(images)] for number in range(batch)]
    files = [libjpeg_encode(image) for image in own]
    ways: dict[str, Work] = {
        "GPU decode, no copy": lambda: gpu.decode_only(files),
        "GPU decode": lambda: gpu.decode(files),
        "GPU encode": lambda: gpu.encode(own),
    }
    for name, pool in pools.items():
        ways[f"{name} decode"] = lambda pool=pool: pool.decode(files)
        ways[f"{name} encode"] = lambda pool=pool: pool.encode(own)
    return {name: round(per_second(work, batch)) for name, work in ways.items()}


def levels(gpu: Gpu, images: list[np.ndarray]) -> dict[str, Any]:
    """Return the differences of the GPU's pixels from libjpeg-turbo's, for 4:4:4, 4:2:0 and GPU-encoded files."""
    found = {}
    for chroma in ("444", "420"):
        files = [simplejpeg.encode_jpeg(image, QUALITY, "RGB", chroma) for image in images]
        off = [
            np.abs(ours.astype(np.int16) - simplejpeg.decode_jpeg(data))
            for ours, data in zip(gpu.decode(files), files, strict=True)
        ]
        found[f"decode {chroma}"] = (int(max(o.max() for o in off)), round(float(np.mean([o.mean() for o in off])), 3))
    ours = [simplejpeg.decode_jpeg(data) for data in gpu.encode(images)]
    theirs = [simplejpeg.decode_jpeg(libjpeg_encode(image)) for image in images]
    off = [np.abs(a.astype(np.int16) - b) for a, b in zip(ours, theirs, strict=True)]
    found["encode 444"] = (int(max(o.max() for o in off)), round(float(np.mean([o.mean() for o in off])), 3))
    return found


def main() -> None:
    """Print a line for each size and batch; writes the JSON after each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, help="folder of pictures; by default random ones")
    parser.add_argument(
        "--sides", type=int, nargs="+", default=[256, 512, 1024, 2048], help="sides of the pictures in pixels"
    )
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32], help="batch sizes")
    parser.add_argument("--json", type=Path, default=Path("jpeg.json"), help="write the figures to this file")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    gpu, cores = Gpu(), os.cpu_count() or 1
    pools = {
        "simplejpeg": Threads(simplejpeg.decode_jpeg, libjpeg_encode, cores),
        "OpenCV": Threads(opencv_decode, opencv_encode, cores),
    }
    facts: dict[str, Any] = {"cores": cores, "nvimgcodec": nvimgcodec.__version__, "idle": [], "busy": []}

    def log_figures(kind: str, row: Any) -> None:
        print(kind, row, flush=True)
        facts[kind].append(row) if isinstance(facts.get(kind), list) else facts.update({kind: row})
        arguments.json.write_text(json.dumps(facts, indent=1) + "\n")

    log_figures("levels", levels(gpu, pictures(arguments.images, 512)))
    for side in arguments.sides:
        images = pictures(arguments.images, side)
        for batch in arguments.batches:
            log_figures("idle", {"side": side, "batch": batch, **measure(gpu, pools, images, batch)})
    for side in arguments.sides[:2]:
        with MatrixProducts() as products:
            before, started = products.done, time.perf_counter()
            time.sleep(0.5)
            alone_per_s = (products.done - before) / (time.perf_counter() - started)
            before, started = products.done, time.perf_counter()
            row = measure(gpu, {}, pictures(arguments.images, side), 32)
            busy_per_s = (products.done - before) / (time.perf_counter() - started)
            log_figures(
                "busy", {"side": side, "batch": 32, **row, "products_beside": round(busy_per_s / alone_per_s, 3)}
            )


if __name__ == "__main__":
    main()
