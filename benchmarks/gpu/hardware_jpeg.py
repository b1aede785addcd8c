"""Compares the GPU's hardware decoder for JPEGs with libjpeg-turbo: pixels by class, damaged files, speed, CPU time.

    python -m benchmarks.gpu.hardware_jpeg [--jpegs DIR] [--pictures DIR] [--verdicts damaged.json] [--json OUT]

Pixels: files of `--jpegs`, and pictures of `--pictures` encoded with different qualities, subsamplings and sizes.
Damaged: copies of files with bits flipped, cut off or overwritten, as `--write-verdicts` described them on a host with
simplejpeg, whose strict decoder is the service's. Speed: lanes and batches in flight, alone and beside matrix products.
"""

from __future__ import annotations

import argparse
import ctypes
import io
import json
import re
import struct
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFile

from benchmarks.gpu.hardware_jpeg_files import class_of, damages, encoded, made, verdicts
from benchmarks.gpu.hardware_jpeg_lane import JpegLane, JpegToHost
from benchmarks.gpu.hardware_jpeg_speed import Host, speed
from benchmarks.gpu.matrix_products import MatrixProducts
from engines.cuda.api import Cuda, open_cuda
from engines.cuda.quick_calls import open_quick_calls
from engines.errors import EngineError
from service.core.picture_work import JpegPlanes
from service.devices.pictures.kernels import NvrtcKernels
from service.devices.pictures.nvjpeg import open_nvjpeg

_SPEED_OF = {"444 q90": {"subsampling": 0, "quality": 90}, "420 q80": {"subsampling": 2, "quality": 80}}


def by_libjpeg(data: bytes) -> np.ndarray:
    """Decode with libjpeg-turbo."""
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB"))


def decode_one(lane: JpegLane, host: Host, data: bytes, planes: JpegPlanes) -> np.ndarray:
    """Decode a file alone; memory that was not written holds 0xCD."""
    host.used = 0
    address, nbytes = host.place(data), 3 * planes.height * planes.width
    at = host.room(nbytes)
    host.bytes[at : at + nbytes] = 0xCD
    lane.decode([JpegToHost(address, len(data), planes, host.pinned.address + at)])
    return host.bytes[at : at + nbytes].reshape(planes.height, planes.width, 3).copy()


def compare(lane: JpegLane, host: Host, files: Iterator[bytes]) -> dict[str, Any]:
    """Return for each class: files, how many were refused, how many equal, the largest difference and where."""
    rows: dict[str, dict[str, Any]] = defaultdict(
        lambda: {"files": 0, "refused": 0, "equal": 0, "largest": 0, "errors": {}}
    )
    for data in files:
        try:
            (name, planes), theirs = class_of(data), by_libjpeg(data)
        except (OSError, SyntaxError, IndexError, struct.error):  # libjpeg-turbo refuses it, too
            rows["refused by libjpeg-turbo"]["files"] += 1
            continue
        if planes is not None and min(planes[:2]) < 64:
            name = f"{name} below 64"
        row = rows[name]
        row["files"] += 1
        try:
            ours = decode_one(lane, host, data, planes or JpegPlanes(theirs.shape[0], theirs.shape[1], 1, 1))
        except EngineError as error:
            row["refused"] += 1
            row["errors"][str(error)] = row["errors"].get(str(error), 0) + 1
            continue
        off = np.abs(ours.astype(np.int16) - theirs)
        row["equal"] += not off.any()
        row["largest"] = max(row["largest"], int(off.max()))
        if off.any() and "first" not in row:
            wrong = np.argwhere(off.any(axis=2))
            row["first"] = {
                "size": ours.shape[:2],
                "wrong": len(wrong),
                "at": wrong[:4].tolist(),
                "mean": float(off.mean()),
            }
    return dict(rows)


def try_damaged(lane: JpegLane, host: Host, files: list[Path], told: list[Any]) -> dict[str, Any]:
    """Return how the hardware deals with damaged files."""
    rows: dict[str, int] = defaultdict(int)
    cases = iter(told)
    count = len(told) // len(files)
    for seed, path in enumerate(files):
        for kind, data in damages(path.read_bytes(), seed, count):
            _, strict, crc, whole = next(cases)
            _, planes = class_of(data)
            if planes is None:
                continue
            try:
                ours = decode_one(lane, host, data, planes)
                outcome = "as the lenient decoder" if zlib.crc32(ours.tobytes()) == crc else "OTHER PIXELS"
                if (ours[-1] == 0xCD).all():
                    outcome = "end not written"
            except EngineError as error:
                outcome = f"refused ({str(error)[-9:]})"
            about = "fine" if strict == "fine" else re.sub(r"[0-9x]+", "#", strict)[:40]
            rows[f"{kind} | strict: {about} | markers {'fine' if whole else 'wrong'} | hardware: {outcome}"] += 1
    return dict(sorted(rows.items()))


class _Findings:
    """Findings, printed at once and kept as JSON."""

    def __init__(self, path: Path) -> None:
        self._path, self._facts = path, dict[str, Any]()

    def say(self, name: str, value: Any) -> None:
        """Print and keep one finding."""
        print(name, json.dumps(value), flush=True)
        self._facts[name] = value
        self._path.write_text(json.dumps(self._facts, indent=1) + "\n")


def measure_pixels(lane: JpegLane, cuda: Cuda, findings: _Findings, arguments: argparse.Namespace) -> None:
    """Compare the pixels of sound and of damaged files."""
    host = Host(cuda, 512 << 20)
    for name, row in compare(lane, host, made(arguments.pictures)).items():
        findings.say(f"made: {name}", row)
    if arguments.jpegs:
        files = (path.read_bytes() for path in sorted(arguments.jpegs.rglob("*.jp*g")))
        for name, row in compare(lane, host, files).items():
            findings.say(f"real: {name}", row)
    if arguments.verdicts:
        told = json.loads(arguments.verdicts.read_text())
        findings.say("damaged", try_damaged(lane, host, arguments.damage, told))


def measure_speed(
    cuda: Cuda, open_lane: Callable[[], JpegLane], findings: _Findings, arguments: argparse.Namespace
) -> None:
    """Measure lanes and batches, alone and beside matrix products."""
    pictures = [Image.open(path).convert("RGB").resize((512, 512)) for path in arguments.damage]
    files: list[bytes] = []
    choices = list(product(arguments.lanes, arguments.batches))
    measured = partial(speed, cuda, open_lane, seconds=arguments.seconds)
    for name, options in _SPEED_OF.items():
        files = [encoded(picture, options) for picture in pictures]
        started = time.perf_counter()
        for turn in range(20):
            by_libjpeg(files[turn % len(files)])
        findings.say(f"libjpeg-turbo, {name}, ms", round((time.perf_counter() - started) / 20 * 1e3, 3))
        for lanes, batch in choices:
            row = measured(files, lanes=lanes, batch=batch)
            findings.say(f"alone, {name}, lanes {lanes}, batch {batch}", row)
    with MatrixProducts() as products:
        before, started = products.done, time.perf_counter()
        time.sleep(1.0)
        full = (products.done - before) / (time.perf_counter() - started)
        for lanes, batch in choices:
            before, started = products.done, time.perf_counter()
            row = measured(files, lanes=lanes, batch=batch)
            row["products_kept"] = round((products.done - before) / (time.perf_counter() - started) / full, 3)
            findings.say(f"busy, {[*_SPEED_OF][-1]}, lanes {lanes}, batch {batch}", row)


def parse() -> argparse.Namespace:
    """Parse the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jpegs", type=Path)
    parser.add_argument("--pictures", type=Path, default=Path("docs/pictures"))
    parser.add_argument("--damage", type=Path, nargs="*", default=sorted(Path("tests/data").glob("*.jpg")))
    parser.add_argument("--verdicts", type=Path)
    parser.add_argument("--write-verdicts", type=Path)
    parser.add_argument("--lanes", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--seconds", type=float, default=0.6)
    parser.add_argument("--json", type=Path, default=Path("hardware_jpeg.json"))
    return parser.parse_args()


def main() -> None:
    """Print each finding at once, and write all as JSON."""
    arguments = parse()
    if arguments.write_verdicts:
        arguments.write_verdicts.write_text(json.dumps(verdicts(arguments.damage, 120)))
        return
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    ImageFile.MAXBLOCK = 1 << 24  # Pillow writes no file larger than this that has restart markers
    findings, cuda = _Findings(arguments.json), open_cuda()
    nvjpeg, kernels = open_nvjpeg(), NvrtcKernels(cuda, open_quick_calls())
    version = [ctypes.c_int() for _ in range(3)]
    for number, one in enumerate(version):
        nvjpeg.library.nvjpegGetProperty(number, ctypes.byref(one))
    findings.say("nvjpeg", [one.value for one in version])
    open_lane = partial(JpegLane, cuda, nvjpeg, kernels)
    measure_pixels(open_lane(), cuda, findings, arguments)
    measure_speed(cuda, open_lane, findings, arguments)


if __name__ == "__main__":
    main()
