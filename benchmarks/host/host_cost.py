"""Measures the host's cost of a picture by stage (CPU time, GIL, memory) and the throughput of one process.

    .venv/bin/python -m benchmarks.host.host_cost [--side 256 512] [--tiles 256 512] [--upload png] [--reply png]

Inpainting, JPEG in, PNG mask in, JPEG out (or --upload and --reply). Times are CPU times, so other work on the machine
affects them little. Stages run one after another on one thread. `whole process` is the pipeline as it serves, with
batches of 32 and an engine that computes nothing: tiles are copied in and out as for a GPU. Code that holds the GIL
cannot run in parallel, so 1,000 / `GIL ms` is the maximum of images per second in one process. gil_probe.c, compiled
with `cc` and preloaded, measures how long the GIL is held; without it these columns are empty.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import io
import json
import logging
import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import cv2
import numpy as np
import structlog
from PIL import Image
from rich.console import Console
from rich.table import Table

from benchmarks.harness.inputs import photo_and_mask, write_fake_models
from engines.base import Engine
from engines.manifest import Manifest, read_manifest
from service.app import open_pipeline
from service.batching.local_backend import open_local_backend
from service.core.batch_rows import Sample
from service.core.call import Call
from service.core.order import Order
from service.core.pictures import ImageFormat, Picture
from service.core.schemas import InpaintOptions
from service.core.settings import Settings
from service.devices.contract import Device, FinishedBatch, Ticket, Tiles
from service.imaging import crops, masks, postprocess, preprocess
from service.imaging.files import codec
from service.imaging.tasks import estimate_cost, read_headers
from service.lifecycle.host import keep_freed_memory
from service.pipeline import Pipeline

BATCH = 32
_PARTS = 10
MAX_PIXELS = 10**9
PROBE = "RETOUCH_GIL_PROBE"


@dataclass(frozen=True)
class Row:
    """The cost of a stage per picture. gil_ms: time with the GIL; gil_releases: its releases; None if not counted."""

    side: int
    stage: str
    cpu_ms: float
    gil_ms: float | None
    gil_releases: float | None
    allocated_mb: float | None
    loop_ms: float | None = None
    """CPU time of the event loop's thread."""
    images_per_s: float | None = None


@dataclass(frozen=True)
class Upload:
    """An encoded picture and its mask, `side` pixels square."""

    side: int
    image: bytes
    mask: bytes
    reply: ImageFormat


def upload_of(side: int, uploaded: ImageFormat, reply: ImageFormat) -> Upload:
    """Make an upload; Pillow writes PNGs with all kinds of filters, as users' files have them."""
    image, mask = photo_and_mask(side)
    Image.open(io.BytesIO(image)).save(file := io.BytesIO(), uploaded, quality=92)
    return Upload(side, file.getvalue(), mask, reply)


class Probe:
    """Reads the counters of gil_probe.c."""

    def __init__(self) -> None:
        path = os.environ.get(PROBE)
        self._library = ctypes.PyDLL(path) if path else None  # PyDLL, so that reading does not release the GIL
        if self._library:
            self._library.probe_held_s.restype = ctypes.c_double
            self._library.probe_drops.restype = ctypes.c_long

    def start(self) -> None:
        if self._library:
            self._library.probe_start()

    def read(self, pictures: int) -> tuple[float | None, float | None]:
        """Return milliseconds held and releases of the GIL since `start`, each per picture."""
        if not self._library:
            return None, None
        return self._library.probe_held_s() * 1e3 / pictures, self._library.probe_drops() / pictures


def restart_with_probe() -> None:
    """Start this program again with the probe, if there is a compiler; CPython 3.14 and later are not supported."""
    compiler = shutil.which("cc")
    if os.environ.get(PROBE) or compiler is None or sys.version_info >= (3, 14):
        return
    with TemporaryDirectory() as folder:
        library = Path(folder, "gil_probe.so")
        source = Path(__file__).with_name("gil_probe.c")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        environ = {**os.environ, "LD_PRELOAD": str(library), PROBE: str(library)}
        again = [sys.executable, "-m", "benchmarks.host.host_cost", *sys.argv[1:]]
        sys.exit(subprocess.run(again, env=environ, check=False).returncode)


def stages(upload: Upload, manifest: Manifest) -> dict[str, Callable[[], Any]]:
    """Return the stages of one picture by name, each with the results of the stages before it."""
    image, mask = upload.image, upload.mask
    picture = codec.decode(image, max_pixels=MAX_PIXELS)
    hole = codec.decode_mask(mask, "white", max_pixels=MAX_PIXELS)
    plan = crops.plan_crops(hole, manifest.size, "auto")
    samples = [preprocess.inpaint_sample(picture, hole, crop, manifest) for crop in plan]
    tiles = [np.zeros_like(sample.arrays["image"]) for sample in samples]
    result: Picture = postprocess.paste_fills(picture, hole, plan, tiles)
    body = codec.encode(result, upload.reply, 90)
    file, files = Path("/dev/null"), {"image": image, "mask": mask}

    def plan_crops() -> None:
        masks.measure_coverage(hole, "white", lambda: codec.measure_brightness(mask, max_pixels=MAX_PIXELS))
        crops.plan_crops(hole, manifest.size, "auto")

    def hand_over() -> None:
        for sample, tile in zip(samples, tiles, strict=True):
            np.copyto(tile, sample.arrays["image"])
            tile.copy()

    return {
        "header": lambda: estimate_cost(files, read_headers(files, MAX_PIXELS)),
        "decode image": lambda: codec.decode(image, max_pixels=MAX_PIXELS),
        "decode mask": lambda: codec.decode_mask(mask, "white", max_pixels=MAX_PIXELS),
        "plan": plan_crops,
        "crop": lambda: [preprocess.inpaint_sample(picture, hole, crop, manifest) for crop in plan],
        "hand over": hand_over,
        "paste": lambda: postprocess.paste_fills(picture, hole, plan, tiles),
        "encode": lambda: codec.encode(result, upload.reply, 90),
        "write": lambda: file.write_bytes(body),
    }


def measure_stage(side: int, stage: str, work: Callable[[], Any], pictures: int, probe: Probe) -> Row:
    """Measure one stage on this thread: the fastest of several runs, which other work on the machine slowed least."""
    each = max(1, pictures // _PARTS)
    parts = []
    for _ in range(_PARTS):
        probe.start()
        started = time.thread_time()
        for _ in range(each):
            work()
        parts.append(((time.thread_time() - started) * 1e3 / each, *probe.read(each)))
    cpu_ms, gil_ms, gil_releases = min(parts, key=lambda part: part[0])
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return Row(side, stage, cpu_ms, gil_ms, gil_releases, peak / 2**20)


@dataclass
class FreeDevice(Device):
    """A device that returns its input, copied in and out like a GPU's buffers, and computes nothing."""

    _staged: dict[Any, np.ndarray] = field(default_factory=dict)

    def launch(self, _engine: Engine, samples: Sequence[Sample]) -> FinishedBatch:
        shape = samples[0].arrays["image"].shape
        staged = self._staged.setdefault(shape, np.empty((BATCH, *shape), np.uint8))
        np.stack([sample.arrays["image"] for sample in samples], out=staged[: len(samples)])
        return FinishedBatch([row.copy() for row in staged[: len(samples)]])

    def collect(self, ticket: Ticket) -> Tiles:
        assert isinstance(ticket, FinishedBatch)
        return ticket.tiles

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


async def serve(upload: Upload, folder: Path, options: argparse.Namespace, probe: Probe, *, save: bool) -> Row:
    """Measure the pipeline as it serves, without HTTP."""
    settings = Settings.model_validate(
        {
            "models_dir": folder / "models",
            "results_dir": folder / "results",
            "engine": "fake",
            "inpaint_model": "photos",
            "max_batch_size": BATCH,
            "codec_threads": options.threads,
            "spool_max_items": 10**6,
            "log_level": "warning",
        }
    )
    async with open_pipeline(settings, partial(open_local_backend, open_device=lambda _: FreeDevice())) as pipeline:
        await ask_all(pipeline, upload, 2 * BATCH, save=save)
        await asyncio.to_thread(pipeline.store.flush, 600.0)
        pictures = options.pictures
        probe.start()
        started, cpu, loop = time.perf_counter(), time.process_time(), time.thread_time()
        await ask_all(pipeline, upload, pictures, save=save)
        wall_s = time.perf_counter() - started
        await asyncio.to_thread(pipeline.store.flush, 600.0)
        cpu_ms = (time.process_time() - cpu) * 1e3 / pictures
        loop_ms = (time.thread_time() - loop) * 1e3 / pictures
        name = "whole process" if save else "the same, not saved"
        return Row(upload.side, name, cpu_ms, *probe.read(pictures), None, loop_ms, pictures / wall_s)


async def ask_all(pipeline: Pipeline, upload: Upload, pictures: int, *, save: bool) -> None:
    """Send all pictures, four batches of them at a time."""
    room = asyncio.Semaphore(4 * BATCH)

    async def run_order(number: int) -> None:
        async with room:
            now = pipeline.clock()
            options = InpaintOptions.model_validate({"format": upload.reply, "save": save})
            order = Order("inpaint", {"image": upload.image, "mask": upload.mask}, options)
            await pipeline.run(order, Call(f"bench-{number}", now, now + 600))

    await asyncio.gather(*map(run_order, range(pictures)))


def measure(side: int, options: argparse.Namespace, probe: Probe) -> list[Row]:
    """Measure all rows of one size."""
    upload = upload_of(side, options.upload, options.reply)
    with TemporaryDirectory(prefix="retouch-bench-") as name:
        folder = Path(name)
        write_fake_models(folder / "models", sides=tuple(options.tiles or (side // 2, side)), max_batch=BATCH)
        manifest = read_manifest(folder / "models" / "photos" / "1")
        works = stages(upload, manifest)
        rows = [measure_stage(side, stage, work, options.pictures, probe) for stage, work in works.items()]
        rows += [asyncio.run(serve(upload, folder, options, probe, save=save)) for save in (True, False)]
        return rows


def print_rows(rows: Sequence[Row]) -> None:
    """Print a table for each size."""
    for side in dict.fromkeys(row.side for row in rows):
        columns = ("CPU ms", "GIL ms", "GIL releases", "peak MiB", "event loop ms", "images/s here", "at most")
        table = Table(f"{side}²", title_justify="left")
        for column in columns:
            table.add_column(column, justify="right", no_wrap=True)
        for row in (row for row in rows if row.side == side):
            most = 1e3 / row.gil_ms if row.images_per_s and row.gil_ms else None
            cells = (row.cpu_ms, row.gil_ms, row.gil_releases, row.allocated_mb, row.loop_ms, row.images_per_s, most)
            digits = (2, 3, 0, 1, 2, 0, 0)
            texts = ("" if cell is None else f"{cell:,.{n}f}" for cell, n in zip(cells, digits, strict=True))
            table.add_row(row.stage, *texts)
        Console(width=120).print(table)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, nargs="+", default=[256, 512, 1024], help="side of the pictures in pixels")
    parser.add_argument("--tiles", type=int, nargs="+", help="sides of the model's tiles; by default half and whole")
    parser.add_argument("--pictures", type=int, default=200, help="pictures of each row")
    parser.add_argument("--threads", type=int, default=16, help="codec threads of the whole process")
    for name in ("upload", "reply"):
        parser.add_argument(f"--{name}", choices=codec.MEDIA_TYPES, default="jpeg", help=f"format of the {name}")
    parser.add_argument("--json", type=Path, help="write the rows there")
    options = parser.parse_args()
    restart_with_probe()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    cv2.setNumThreads(1)  # as the service does; the next line too
    keep_freed_memory()
    probe, rows = Probe(), []
    for side in options.side:
        rows += measure(side, options, probe)
    print_rows(rows)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
