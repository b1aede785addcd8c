"""TensorRT plans on the GPU that is here: seconds to build and to load, parity, ms and images/s, engine alone.

Run it as `python benchmarks/gpu_plans.py MODEL_DIRECTORY …`, with a directory such as models/facades/1.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the host has no install of this project

from engines.base import BatchShape, blank_feed
from engines.cuda import Cuda, open_cuda
from engines.manifest import read_manifest
from engines.trt import TrtEngine
from engines.trt_build import BuildOptions
from engines.trt_library import load_tensorrt

CACHE = Path("/tmp/retouch-cache")
RUNS = 50


def open_timed(directory: Path, cuda: Cuda) -> tuple[TrtEngine, float]:
    """The engine, and the seconds that took."""
    started = time.perf_counter()
    engine = TrtEngine(
        directory,
        read_manifest(directory),
        library=load_tensorrt(),
        cuda=cuda,
        cache_dir=CACHE,
        options=BuildOptions(max_batch=32),
    )
    return engine, time.perf_counter() - started


def measure(engine: TrtEngine, cuda: Cuda, shape: BatchShape) -> float:
    """Milliseconds of a batch between CUDA events, after the graph was captured."""
    feed = dict(blank_feed(engine.manifest, shape))
    feed["image"] = np.random.default_rng(0).random(feed["image"].shape, np.float32)
    engine.infer(feed)
    stream, begin, end = cuda.stream(), cuda.event(), cuda.event()
    for _ in range(5):
        engine.enqueue(shape, stream)
    begin.record(stream)
    for _ in range(RUNS):
        engine.enqueue(shape, stream)
    end.record(stream)
    end.synchronise()
    return end.seconds_since(begin) / RUNS * 1e3


def main() -> None:
    """Print a line for each tile size and batch."""
    cuda = open_cuda()
    for directory in map(Path, sys.argv[1:]):
        engine, built_s = open_timed(directory, cuda)
        print(f"{engine.manifest.key}: opened in {built_s:.1f} s; {engine.note}", flush=True)
        for height, width in engine.manifest.size.buckets():
            for batch in (1, 8, 32):
                ms = measure(engine, cuda, BatchShape(batch, height, width))
                print(f"{width}×{height}, batch {batch}: {ms:.3f} ms, {batch / ms * 1e3:,.0f} images/s", flush=True)
        engine.close()
        again, loaded_s = open_timed(directory, cuda)
        print(f"from the cache in {loaded_s:.1f} s", flush=True)
        again.close()


if __name__ == "__main__":
    main()
