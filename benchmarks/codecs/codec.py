"""Compares decoding and encoding by Pillow, OpenCV, simplejpeg and this service: milliseconds and bytes.

    python -m benchmarks.codecs.codec [--quick]

Pictures are mosaics of the photographs in tests/data. Each figure is the best of several runs on one thread.
"""

from __future__ import annotations

import argparse
import io
import time
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image
from rich.console import Console
from rich.table import Table

from service.core.pictures import Picture
from service.imaging.files import codec
from service.imaging.files.png import encode_png

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"
Pixels = NDArray[np.uint8]
Result = tuple[float, int]


def mosaic(height: int, width: int) -> Pixels:
    """Make a picture of mirrored photographs with varied brightness, H×W×3, in which no two parts are equal."""
    random = np.random.default_rng(0)
    photos = [np.asarray(Image.open(DATA / name))[:340] for name in ("skirt.jpg", "crocs.jpg", "dress.jpg")]

    def tile() -> Pixels:
        photo = photos[int(random.integers(3))][:, :: random.choice((-1, 1))]
        return np.asarray(np.clip(photo * random.uniform(0.7, 1.2), 0, 255), np.uint8)

    rows = [np.hstack([tile() for _ in range(-(-width // 256))]) for _ in range(-(-height // 340))]
    return np.ascontiguousarray(np.vstack(rows)[:height, :width])


def timed(work: Callable[[], Any], runs: int) -> float:
    """Return the milliseconds of the fastest of `runs` runs: other work on the machine can only make a run slower."""
    work()
    samples = []
    for _ in range(runs):
        started = time.perf_counter()
        work()
        samples.append(time.perf_counter() - started)
    return min(samples) * 1e3


def pillow_file(pixels: Any, kind: str, **options: Any) -> bytes:
    """Encode a file with Pillow."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def opencv_file(pixels: Any, suffix: str, *options: int) -> bytes:
    """Encode a file with OpenCV, including the conversion to BGR."""
    turned = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    return bytes(cv2.imencode(suffix, turned, list(options))[1].data)


def decoders(pixels: Pixels) -> dict[str, Callable[[], Any]]:
    """Return every decoder by name."""
    files = {
        "JPEG": pillow_file(pixels, "JPEG", quality=92),
        "PNG": pillow_file(pixels, "PNG"),
        "WebP": pillow_file(pixels, "WEBP", quality=90),
    }
    found: dict[str, Callable[[], Any]] = {}
    for kind, data in files.items():
        flags = cv2.IMREAD_COLOR_RGB
        found[f"{kind} decode, Pillow"] = lambda d=data: np.asarray(Image.open(io.BytesIO(d)).convert("RGB"))
        found[f"{kind} decode, OpenCV"] = lambda d=data, f=flags: cv2.imdecode(np.frombuffer(d, np.uint8), f)
        if kind == "JPEG":
            found["JPEG decode, simplejpeg"] = lambda d=data: simplejpeg.decode_jpeg(d)
        found[f"{kind} decode, service"] = lambda d=data: codec.decode(d, max_pixels=10**9)
    deep = codec.encode(Picture(pixels.astype(np.uint16) * 257), "png", 90)
    found["PNG of 16 bits decode, OpenCV"] = lambda: cv2.imdecode(np.frombuffer(deep, np.uint8), cv2.IMREAD_UNCHANGED)
    found["PNG of 16 bits decode, service"] = lambda: codec.decode(deep, max_pixels=10**9)
    return found


def encoders(pixels: Pixels) -> dict[str, Callable[[], bytes]]:
    """Return every encoder by name."""
    picture = Picture(pixels)
    level, strategy, filters = cv2.IMWRITE_PNG_COMPRESSION, cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_FILTER
    found: dict[str, Callable[[], bytes]] = {
        "JPEG 92 encode, Pillow": lambda: pillow_file(pixels, "JPEG", quality=92, subsampling=0),
        "JPEG 92 encode, OpenCV": lambda: opencv_file(pixels, ".jpg", cv2.IMWRITE_JPEG_QUALITY, 92),
        "JPEG 92 encode, simplejpeg": lambda: simplejpeg.encode_jpeg(pixels, 92, "RGB", "444"),
        "JPEG 92 encode, service": lambda: codec.encode(picture, "jpeg", 92),
        "WebP 90 encode, OpenCV": lambda: opencv_file(pixels, ".webp", cv2.IMWRITE_WEBP_QUALITY, 90),
        "WebP 90 encode, Pillow method 0": lambda: pillow_file(pixels, "WEBP", quality=90, method=0),
        "WebP 90 encode, Pillow method 4": lambda: pillow_file(pixels, "WEBP", quality=90, method=4),
        "WebP 90 encode, service (method 2)": lambda: codec.encode(picture, "webp", 90),
    }
    for number in (1, 6):
        found[f"PNG encode, Pillow level {number}"] = lambda n=number: pillow_file(pixels, "PNG", compress_level=n)
    for name, value in (("default", zlib.Z_DEFAULT_STRATEGY), ("Huffman", zlib.Z_HUFFMAN_ONLY), ("RLE", zlib.Z_RLE)):
        for filter_name, chosen in (("up", cv2.IMWRITE_PNG_FILTER_UP), ("all", cv2.IMWRITE_PNG_ALL_FILTERS)):
            options = (level, 1, strategy, value, filters, chosen)
            found[f"PNG encode, OpenCV level 1 {name}, filter {filter_name}"] = lambda o=options: opencv_file(
                pixels, ".png", *o
            )
    found["PNG encode, service (isal level 1, filter up)"] = lambda: encode_png(pixels, None)
    found["PNG of 16 bits encode, service"] = lambda: encode_png(pixels.astype(np.uint16) * 257, None)
    return found


def main() -> None:
    """Print a table with a row for each codec and two columns for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small pictures only")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    cv2.setNumThreads(1)
    sizes = [(256, 256), (512, 512)] + ([] if quick else [(3000, 4000)])
    cells: dict[str, list[str]] = {}
    for height, width in sizes:
        pixels = mosaic(height, width)
        runs = 5 if height > 1000 else 30
        for name, work in decoders(pixels).items():
            cells.setdefault(name, []).append(f"{timed(work, runs):.2f} ms")
        for name, encode in encoders(pixels).items():
            cells.setdefault(name, []).append(f"{timed(encode, runs):.2f} ms, {len(encode()) / 1e3:,.0f} kB")
    flat = np.asarray(Image.open(DATA / "facade_labels.png").convert("RGB"))
    for name, encode in encoders(flat).items():
        cells[name].append(f"{len(encode()) / 1e3:,.1f} kB")
    table = Table("", *(f"{width}×{height}" for height, width in sizes), "label map 256×256")
    for name in sorted(cells):
        table.add_row(name, *cells[name])
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
