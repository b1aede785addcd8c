"""Speed steps of benchmarks/gpu/pipeline.py: the engine alone, the device, and from bytes to bytes."""

from __future__ import annotations

import time
from typing import Any

import cv2
import numpy as np

from benchmarks.gpu.bench import Bench, engine_alone_s, random_samples
from engines.base import BatchShape
from retouch.bench.pipeline.run import Workload, measure
from retouch.bench.pipeline.variants import DEPTH, Variant, variants_for, why_no_overlap
from service.core.pictures import Picture, Size
from service.core.settings import Settings
from service.imaging.files.codec import encode


def engine(bench: Bench) -> None:
    """Measure images/s of the engine alone by CUDA events, inputs already in its memory."""
    for batch in sorted({1, min(8, bench.arguments.max_batch), bench.arguments.max_batch}):
        seconds = engine_alone_s(bench.engine, BatchShape(batch, *bench.largest_tile))
        bench.log_figures(
            "engine",
            batch=batch,
            tile=bench.largest_tile,
            ms=round(seconds * 1e3, 3),
            images_per_s=round(batch / seconds),
        )


def device(bench: Bench) -> None:
    """Measure images/s from tiles to tiles on the host at each depth, and the time of the device worker."""
    tile, batch = Size(*bench.largest_tile), bench.arguments.max_batch
    samples = random_samples(bench.manifest, np.random.default_rng(0), batch, tile)
    alone = batch / engine_alone_s(bench.engine, BatchShape(batch, *tile))
    for depth in (1, 2, DEPTH):
        made = bench.device(depth)
        if made.depth != depth:
            continue
        waiting: list[Any] = [made.launch(bench.engine, samples) for _ in range(depth)]
        batches = max(10, int(1.5 * alone / batch))
        spent = {"launch": 0.0, "collect": 0.0}
        for warm in (True, False):
            busy, started = getattr(made, "busy_s", 0.0), time.perf_counter()
            spent = dict.fromkeys(spent, 0.0)
            for _ in range(5 if warm else batches):
                begun = time.perf_counter()
                made.collect(waiting.pop(0))
                collected = time.perf_counter()
                waiting.append(made.launch(bench.engine, samples))
                spent["collect"] += collected - begun
                spent["launch"] += time.perf_counter() - collected
            seconds = time.perf_counter() - started
        for ticket in waiting:
            made.collect(ticket)
        bench.log_figures(
            "device",
            depth=depth,
            batch=batch,
            images_per_s=round(batches * batch / seconds),
            of_engine_alone=round(batches * batch / seconds / alone, 3),
            gpu_busy=round((getattr(made, "busy_s", 0.0) - busy) / seconds, 3),
            ms_a_batch={name: round(value / batches * 1e3, 2) for name, value in spent.items()},
        )
        made.close()


def job(bench: Bench, count: int) -> Workload:
    """Make the work of `count` encoded pictures of the configured side, with masks if the model fills holes."""
    side = bench.arguments.side or min(bench.largest_tile)
    rng = np.random.default_rng(3)
    folder = bench.arguments.images
    files = sorted(path for path in folder.iterdir() if path.suffix in {".jpg", ".jpeg", ".png"}) if folder else []
    images = [resized_jpeg(path.read_bytes(), side) for path in files] or [
        encode(Picture(rng.integers(0, 256, (side, side, 3), np.uint8)), "jpeg", 92) for _ in range(8)
    ]
    masks = None
    if bench.manifest.task == "inpaint":
        own = sorted(bench.arguments.masks.iterdir()) if bench.arguments.masks else []
        masks = [path.read_bytes() for path in own] or [ellipse(rng, side) for _ in range(8)]
    return Workload(bench.manifest.name, [images[number % len(images)] for number in range(count)], masks)


def resized_jpeg(image: bytes, side: int) -> bytes:
    """Resize a picture to side × side, as a JPEG."""
    pixels: Any = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR)
    pixels = cv2.resize(pixels, (side, side), interpolation=cv2.INTER_AREA)
    return encode(Picture(np.ascontiguousarray(pixels[..., ::-1])), "jpeg", 92)


def ellipse(rng: np.random.Generator, side: int) -> bytes:
    """Draw a mask of a few holes that are thin enough for any model."""
    rows, columns = np.mgrid[:side, :side]
    hole = np.zeros((side, side), np.uint8)
    for _ in range(4):
        row, column = rng.uniform(0.2, 0.8, 2) * side
        hole[((rows - row) / side * 24) ** 2 + ((columns - column) / side * 10) ** 2 < 1] = 255
    return encode(Picture(hole[..., None]), "png", 90)


def settings_of(bench: Bench) -> Settings:
    """Make the service's settings from the arguments."""
    return Settings.model_validate(
        {
            "models_dir": bench.arguments.model.parents[1],
            "engine": bench.arguments.engine,
            "engine_cache_dir": bench.arguments.cache,
            "max_batch_size": bench.arguments.max_batch,
            "trt_level": bench.arguments.trt_level,
            "log_level": "warning",
        }
    )


def variants(bench: Bench) -> None:
    """Measure all pipeline variants, and the last one without saving."""
    work = job(bench, bench.arguments.count)
    rows = {}
    for variant, reason in variants_for(bench.engine):
        if reason:
            bench.log_figures("variants", name=variant.name, reason=reason)
            continue
        row = rows[variant.name] = measure(settings_of(bench), work, variant)
        bench.log_figures("variants", **row.as_json())
    measured = list(rows.values())
    saved, silent = measured[-2], measured[-1]
    bench.log_figures(
        "variants",
        times_faster_than_sequential=round(measured[0].total_ms / saved.total_ms, 2),
        last_reply_over_unsaved=round(saved.total_ms / silent.total_ms, 3),
        last_file_over_unsaved=round(saved.durable_ms / silent.total_ms, 3),
    )


def throughput(bench: Bench) -> None:
    """Measure encoded bytes to encoded bytes against the engine alone, in the largest batches."""
    last = [variant for variant, reason in variants_for(bench.engine) if not reason][-1]
    row = measure(settings_of(bench), job(bench, bench.arguments.many), last)
    batch = bench.arguments.max_batch
    alone = batch / engine_alone_s(bench.engine, BatchShape(batch, *row.tile))
    bench.log_figures(
        "throughput", **row.as_json(), engine_alone=round(alone), of_engine_alone=round(row.images_per_s / alone, 3)
    )


def latency(bench: Bench) -> None:
    """Measure one picture at a time, from its bytes to the JPEG's, against the engine's own time."""
    overlap = 0 if why_no_overlap(bench.engine) else DEPTH
    one = Variant("one at a time", saving="none", overlap=overlap, graphs=True)
    row = measure(settings_of(bench), job(bench, max(50, bench.arguments.count)), one)
    alone_ms = engine_alone_s(bench.engine, BatchShape(1, *row.tile)) * 1e3
    bench.log_figures(
        "latency",
        p50_ms=round(row.p50_ms, 2),
        engine_ms=round(alone_ms, 2),
        over_ms=round(row.p50_ms - alone_ms, 2),
        tile=row.tile,
        batches=row.batches,
    )
