"""Compares libraries that compress and inflate the scanlines of a PNG: milliseconds of CPU and bytes.

    python -m pip install deflate imagecodecs fpng
    python -m benchmarks.codecs.png_deflate [--rounds 40] [--side 512] [--json FILE]
    python -m benchmarks.codecs.png_deflate --pictures FOLDER [--rounds 5] [--side 512]

All libraries get the same pictures. zlib, isal and libdeflate compress rows that the service has filtered (filter Up);
fpng and imagecodecs (libspng) filter, compress and write the whole file. Every round runs each library once, on one
thread; each figure is the median of the rounds. Libraries that are not installed are left out. The service uses isal;
the others are measured for the decision (docs/adr/0024-isal.md).

With --pictures the service's two encoders are compared instead, on square centres (at most --side pixels) of the
pictures in a folder: ISA-L alone, and the C++ code where it was compiled (docs/adr/0059-photographs-as-png.md).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from rich.console import Console
from rich.table import Table

from benchmarks.codecs.codec import DATA, mosaic, pillow_file
from benchmarks.harness.inputs import PHOTO
from service.imaging.files import png, scanlines
from service.imaging.files.png import encode_png

Pixels = NDArray[np.uint8]
_CACHES = 64 << 20
"""Bytes that are read to evict the picture from the caches."""
Cells = dict[str, dict[str, tuple[float, int]]]
"""Milliseconds and bytes, by method and picture."""


def pictures(side: int) -> dict[str, Pixels]:
    """Return photographs, flat pictures, a label map and masks, H×W×C."""
    smooth = np.asarray(Image.open(PHOTO).convert("RGB").resize((side, side), Image.Resampling.LANCZOS))
    labels = Image.open(DATA / "facade_labels.png").convert("RGB").resize((side, side), Image.Resampling.NEAREST)
    drawing = Image.new("RGB", (side, side), "white")
    draw = ImageDraw.Draw(drawing)
    for row in range(0, side, 16):
        draw.text((4, row), "The quick brown fox jumps over the lazy dog. " * 4, fill=(20, 20, 60))
    mask = Image.new("L", (side, side))
    for index in range(12):
        x, y = (index * 97) % side, (index * 53) % side
        ImageDraw.Draw(mask).ellipse([x, y, x + side // 8, y + side // 10], fill=255)
    deep = mosaic(side, side).astype(">u2") * 257
    return {
        "photograph, detailed": mosaic(side, side),
        "photograph, smooth": smooth,
        "one colour": np.full((side, side, 3), 200, np.uint8),
        "label map": np.asarray(labels),
        "text": np.asarray(drawing),
        "mask": np.asarray(mask)[:, :, None],
        "16 bits": np.ascontiguousarray(deep).view(np.uint8).reshape(side, side, -1),
        "noise": np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8),
    }


def filtered(pixels: Pixels) -> bytes:
    """Return the scanlines with filter Up, as the service writes them where it searches for repetitions."""
    rows = np.ascontiguousarray(pixels).reshape(len(pixels), -1)
    lines = np.empty((len(rows), rows.shape[1] + 1), np.uint8)
    lines[:, 0] = 2
    lines[0, 1:] = rows[0]
    np.subtract(rows[1:], rows[:-1], out=lines[1:, 1:])
    return lines.tobytes()


def _run_length(lines: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 15, 9, zlib.Z_RLE)
    return packer.compress(lines) + packer.flush()


def import_optional(name: str) -> Any:
    """Return an optional library; None if it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        return None


def packers() -> dict[str, Callable[[bytes], bytes]]:
    """Return the functions that compress filtered scanlines, by name."""
    isal, libdeflate = import_optional("isal.isal_zlib"), import_optional("deflate")
    chosen: dict[str, Callable[[bytes], bytes]] = {"zlib, level 1, run lengths": _run_length}
    for level in (0, 1, 2, 3) if isal else ():
        chosen[f"isal, level {level}"] = lambda lines, n=level: isal.compress(lines, n)
    for level in (1, 3) if libdeflate else ():
        chosen[f"libdeflate, level {level}"] = lambda lines, n=level: bytes(libdeflate.zlib_compress(lines, n))
    return chosen


def writers() -> dict[str, Callable[[Pixels], bytes]]:
    """Return the functions that write whole files of 8-bit RGB, by name."""
    fpng, imagecodecs = import_optional("fpng"), import_optional("imagecodecs")
    chosen: dict[str, Callable[[Pixels], bytes]] = {"the service, whole file": lambda p: encode_png(p, None)}
    if fpng:
        chosen["fpng, whole file"] = fpng.from_ndarray
    if imagecodecs:
        chosen["imagecodecs libspng, level 1"] = lambda p: imagecodecs.png_encode(p, level=1)
    return chosen


def inflaters() -> dict[str, Callable[[bytes, int], bytes]]:
    """Return the functions that inflate, by name; their arguments are the data and the size of the result."""
    isal, libdeflate = import_optional("isal.isal_zlib"), import_optional("deflate")
    chosen: dict[str, Callable[[bytes, int], bytes]] = {"zlib": lambda data, _: zlib.decompress(data)}
    if isal:
        chosen["isal"] = lambda data, size: isal.decompress(data, bufsize=size)
    if libdeflate:
        chosen["libdeflate"] = lambda data, size: bytes(libdeflate.zlib_decompress(data, size))
    return chosen


def interleaved_ms(works: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Return the median milliseconds of CPU of each function; every round calls each once."""
    times_ms: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds + 1):
        for name, work in works.items():
            started = time.thread_time()
            work()
            if number:  # the first round warms up
                times_ms[name].append((time.thread_time() - started) * 1e3)
    return {name: statistics.median(values) for name, values in times_ms.items()}


def measure_picture(pixels: Pixels, rounds: int) -> dict[str, tuple[float, int]]:
    """Measure all compressors, then all inflaters, with one picture."""
    lines, packed = filtered(pixels), _run_length(filtered(pixels))
    works: dict[str, Callable[[], Any]] = {name: (lambda p=pack: p(lines)) for name, pack in packers().items()}
    if pixels.shape[2] == 3:
        works |= {name: (lambda w=write: w(pixels)) for name, write in writers().items()}
    sizes = {name: len(work()) for name, work in works.items()}
    for name, inflate in inflaters().items():
        works[f"inflate, {name}"] = lambda i=inflate: i(packed, len(lines))
        sizes[f"inflate, {name}"] = len(packed)
    for name, check in (("zlib", zlib.crc32), ("isal", getattr(import_optional("isal.isal_zlib"), "crc32", None))):
        if check is not None:
            works[f"CRC, {name}"] = lambda c=check: c(lines)
            sizes[f"CRC, {name}"] = len(lines)
    works["filter Up"], sizes["filter Up"] = (lambda: filtered(pixels)), len(lines)
    return {name: (ms, sizes[name]) for name, ms in interleaved_ms(works, rounds).items()}


def square_centres(folder: Path, side: int) -> list[Pixels]:
    """Return the centre of each picture in a folder, H×W×3; a smaller picture's largest square."""
    centres = []
    for path in sorted(one for one in folder.iterdir() if one.suffix.lower() in {".jpg", ".jpeg", ".png", ".webp"}):
        with Image.open(path) as picture:
            pixels = np.asarray(picture.convert("RGB"))
        crop_side = min(side, *pixels.shape[:2])
        top, left = ((length - crop_side) // 2 for length in pixels.shape[:2])
        centres.append(np.ascontiguousarray(pixels[top : top + crop_side, left : left + crop_side]))
    return centres


def both_ways(pixels: Pixels, rounds: int) -> dict[str, tuple[float, int]]:
    """Return the median milliseconds of CPU and the bytes of the service's file by ISA-L and with C++, and Pillow's."""
    other_data = np.zeros(_CACHES, np.uint8)
    times_ms: dict[str, list[float]] = {"ISA-L": [], "C++": []}
    sizes = {"Pillow": (0.0, len(pillow_file(pixels, "PNG")))}
    for _ in range(rounds + 1):
        for name, times in times_ms.items():
            with nullcontext() if name == "C++" else patch.object(png, "installed_kernel", return_value=None):
                other_data += 1  # evicts the picture from the caches
                started = time.thread_time()
                written = png.encode_png(pixels, None)
                times.append((time.thread_time() - started) * 1e3)
            sizes[name] = (statistics.median(times[1:] or times), len(written))  # the first round warms up
    return sizes


def print_both_ways(cells: Sequence[dict[str, tuple[float, int]]]) -> None:
    """Print the medians of the times, and the sizes as shares of ISA-L's and of Pillow's."""
    table = Table(f"{len(cells)} pictures", "ms", "of ISA-L's bytes: mean", "least to most", "of Pillow's bytes: mean")
    for name in ("ISA-L", "C++"):
        shares = [cell[name][1] / cell["ISA-L"][1] for cell in cells]
        of_pillow = statistics.mean(cell[name][1] / cell["Pillow"][1] for cell in cells)
        times = statistics.median(cell[name][0] for cell in cells)
        spread = f"{min(shares):.3f} to {max(shares):.3f}"
        table.add_row(name, f"{times:.2f}", f"{statistics.mean(shares):.3f}", spread, f"{of_pillow:.3f}")
    Console(width=120).print(table)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="number of rounds")
    parser.add_argument("--side", type=int, default=512, help="side of the pictures in pixels")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument(
        "--pictures", type=Path, help="compare the service's two encoders on the pictures in this folder"
    )
    options = parser.parse_args()
    if options.pictures:
        if scanlines.installed_kernel() is None:
            parser.error("the C++ was not compiled: install a C++ compiler and Retouch again")
        print_both_ways(
            [both_ways(pixels, options.rounds) for pixels in square_centres(options.pictures, options.side)]
        )
        return
    cells: Cells = {name: measure_picture(pixels, options.rounds) for name, pixels in pictures(options.side).items()}
    table = Table("ms, kB", *cells)
    methods = list(next(iter(cells.values())))
    for method in methods:
        values = (cell.get(method) for cell in cells.values())
        table.add_row(method, *("" if v is None else f"{v[0]:.2f}  {v[1] / 1e3:,.1f}" for v in values))
    Console(width=190).print(table)
    if options.json:
        options.json.write_text(json.dumps(cells, indent=1) + "\n")


if __name__ == "__main__":
    main()
