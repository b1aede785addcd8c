"""Compares INT8 with FP16 on one GPU: milliseconds per batch, and PSNR in the holes of photographs against FP32.

    python -m benchmarks.gpu_engines.int8_on_gpu cases PHOTOGRAPHS FILE.npz --count 24     # where the photographs are
    python -m benchmarks.gpu_engines.int8_on_gpu truth MODEL FILE.npz        # FILE.truth.npz has the fills in FP32, too
    python -m benchmarks.gpu_engines.int8_on_gpu measure MODEL FILE.truth.npz ENGINE --work DIR [--prepare]

The photographs and holes are those of the quality gate of `retouch export --precision int8`. Every engine of the
service can be measured. A line of JSON is appended to DIR/int8_on_gpu.jsonl for each figure, so that a later failure
loses none of them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.engine_rate import median_ms
from engines.base import Array, BatchShape, Feed
from engines.manifest import MultipleSize, read_manifest

_BATCHES = (1, 8, 32)
_SIDE = 256
Infer = Callable[[Feed], Array]
Enqueue = Callable[[BatchShape, Any], None]


def main() -> None:
    """Run one step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "step",
        choices=["cases", "truth", "measure"],
        help="cases writes holes, truth fills them in FP32, measure compares an engine with that",
    )
    parser.add_argument("model", type=Path, help="directory such as models/photos/5; a folder of photographs for cases")
    parser.add_argument("file", type=Path, help="file of the cases, or of the fills")
    parser.add_argument("engine", nargs="?", default="", help="engine to measure")
    parser.add_argument("--count", type=int, default=24, help="number of pictures")
    parser.add_argument("--work", type=Path, default=Path(), help="folder for models, caches and plans")
    parser.add_argument("--prepare", action="store_true", help="fill the caches only")
    parser.add_argument("--trt-level", type=int, default=2, help="TensorRT's builder optimisation level, 0 to 5")
    parser.add_argument("--run-s", type=float, default=0.15, help="seconds of one run of a figure")
    options = parser.parse_args()
    {"cases": write_cases, "truth": add_truth, "measure": measure}[options.step](options)


def write_cases(options: argparse.Namespace) -> None:
    """Write photographs and holes as bytes."""
    from retouch.int8.pictures import cases, split_pictures  # noqa: PLC0415 -- the service is not on every GPU host

    size = MultipleSize(multiple_of=64, sides=(_SIDE, 2 * _SIDE))
    every = cases(split_pictures(options.model, 0).judging, size, "0 judging")
    taken = [one for one in every if one.truth.shape[:2] == (_SIDE, _SIDE)][: options.count]
    images, holes = np.stack([one.truth for one in taken]), np.stack([one.hole for one in taken])
    np.savez_compressed(options.file, image=images, hole=holes)


def read_feed(file: Path) -> dict[str, Array]:
    """Return the photographs and holes as inputs of a model."""
    kept = np.load(file)
    return {
        "image": np.ascontiguousarray(np.moveaxis(kept["image"], 3, 1), np.float32) / np.float32(255),
        "mask": np.ascontiguousarray(kept["hole"][:, None], np.float32),
    }


def add_truth(options: argparse.Namespace) -> None:
    """Add the fills of an FP32 graph, computed on the CPU."""
    from engines.onnxrt import OnnxRuntimeEngine  # noqa: PLC0415 -- measured engines may lack it

    engine = OnnxRuntimeEngine(options.model, read_manifest(options.model))
    fills = _one_by_one(lambda feed: engine.infer(feed)["output"], read_feed(options.file))
    with np.load(options.file) as kept:
        np.savez(options.file.with_suffix(".truth.npz"), image=kept["image"], hole=kept["hole"], fill=fills)


def measure(options: argparse.Namespace) -> None:
    """Open an engine; record its speed and the difference of its fills from those in FP32."""
    options.work.mkdir(parents=True, exist_ok=True)
    manifest = read_manifest(options.model)
    facts = {"model": manifest.key, "precision": manifest.precision, "engine": options.engine}

    def log_figures(**more: Any) -> None:
        line = json.dumps({**facts, **more})
        print(line, flush=True)
        with (options.work / "int8_on_gpu.jsonl").open("a") as file:
            file.write(line + "\n")

    started = time.monotonic()
    try:
        infer, enqueue = _engine(options)
        log_figures(opened_s=round(time.monotonic() - started, 1), prepared=options.prepare)
        if options.prepare:
            return
        _quality(options, infer, log_figures)
        _speed(options, infer, enqueue, log_figures)
    except Exception as error:
        log_figures(error=f"{type(error).__name__}: {' '.join(str(error).split())[:600]}")
        raise


def _quality(options: argparse.Namespace, infer: Infer, log_figures: Callable[..., None]) -> None:
    feed = read_feed(options.file)
    found, wanted = _one_by_one(infer, feed), np.load(options.file)["fill"]
    psnr = []
    for one, other, hole in zip(found, wanted, feed["mask"], strict=True):
        inside = np.broadcast_to(hole > 0, one.shape)
        error = float(np.mean(np.square(one[inside].astype(np.float64) - other[inside])))
        psnr.append(float(-10 * np.log10(max(error, 1e-12))))
    log_figures(side=_SIDE, pictures=len(psnr), mean_db=round(float(np.mean(psnr)), 2), worst_db=round(min(psnr), 2))


def _one_by_one(infer: Infer, feed: dict[str, Array]) -> Array:
    rows = len(feed["image"])
    return np.concatenate(
        [np.array(infer({name: array[row : row + 1] for name, array in feed.items()})) for row in range(rows)]
    )


def _speed(options: argparse.Namespace, infer: Infer, enqueue: Enqueue, log_figures: Callable[..., None]) -> None:
    from engines.cuda.api import open_cuda  # noqa: PLC0415 -- a CPU can try the rest

    if options.engine in {"onnxrt", "openvino", "fake"}:
        return
    cuda = open_cuda()
    feed = read_feed(options.file)
    for side, batch in product((_SIDE, 2 * _SIDE), _BATCHES):
        enlarged = {name: array.repeat(side // _SIDE, 2).repeat(side // _SIDE, 3) for name, array in feed.items()}
        infer({name: np.resize(array, (batch, *array.shape[1:])) for name, array in enlarged.items()})
        shape, stream = BatchShape(batch, side, side), cuda.stream()
        ms = median_ms(cuda, stream, partial(enqueue, shape, stream), options.run_s)
        log_figures(side=side, batch=batch, ms=round(ms, 4), images_per_s=round(batch / ms * 1e3, 1))


def _engine(options: argparse.Namespace) -> tuple[Infer, Enqueue]:
    from engines.engine_choice import EngineOptions, open_engine  # noqa: PLC0415 -- loads the runtimes

    chosen = EngineOptions(
        options.engine, cache_dir=options.work / "cache", max_batch=max(_BATCHES), trt_level=options.trt_level
    )
    engine: Any = open_engine(options.model, read_manifest(options.model), chosen)
    engine.warm_up([BatchShape(batch, side, side) for side in (_SIDE, 2 * _SIDE) for batch in _BATCHES])
    return (lambda feed: engine.infer(feed)["output"]), getattr(engine, "enqueue", lambda *_: None)


if __name__ == "__main__":
    main()
