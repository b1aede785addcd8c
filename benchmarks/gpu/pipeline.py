"""Checks and measures the device pipeline on an NVIDIA GPU: correctness, speed, leaks. Prints a line for each step.

    python -m benchmarks.gpu.pipeline --images DIR --out gpu_pipeline.json [--model models/photos/5] [--only STEP …]

Steps: arithmetic (CV-CUDA against numpy), engine (alone), device (overlapped, from tiles to tiles), reference (random
batches against one at a time), memory (growth over many batches), halving (out of memory), full (the same, with the
whole service), faults (damaged caches and packages), variants (the pipeline's variants, from bytes to bytes),
throughput (bytes to bytes in large batches), latency (one picture). The JSON is written after every step, so that an
interrupted run loses only one step.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.checks import arithmetic, halving, memory, reference
from benchmarks.gpu.faults import faults
from benchmarks.gpu.full import full
from benchmarks.gpu.speed import device, engine, latency, throughput, variants
from engines.manifest import read_manifest


def main() -> None:
    """Run the steps in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=Path("models/photos/5"), help="folder of the model version")
    parser.add_argument("--engine", default="trt", help="trt, inductor, onnxrt-cuda, openvino, fake, …")
    parser.add_argument("--images", type=Path, help="folder of pictures; by default random ones")
    parser.add_argument("--masks", type=Path, help="folder of masks; by default ellipses")
    parser.add_argument("--count", type=int, default=50, help="pictures of the variants")
    parser.add_argument("--many", type=int, default=1024, help="pictures of the throughput step")
    parser.add_argument("--batches", type=int, default=1000, help="batches of the steps reference and memory")
    parser.add_argument("--max-batch", type=int, default=32, help="largest number of samples in a batch")
    parser.add_argument("--trt-level", type=int, default=3, help="TensorRT's builder optimisation level, 0 to 5")
    parser.add_argument("--side", type=int, help="side of the pictures; by default the largest tile's")
    parser.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()) / "retouch-cache", help="folder for compiled engines"
    )
    parser.add_argument(
        "--out", type=Path, default=Path(os.environ.get("OUT", ".")) / "gpu_pipeline.json", help="file for the figures"
    )
    parser.add_argument("--only", nargs="+", choices=list(STEPS), default=list(STEPS), help="measure only these steps")
    arguments = parser.parse_args()
    bench = Bench(arguments, read_manifest(arguments.model))
    bench.log_figures(
        "host", python=platform.python_version(), cores=os.cpu_count(), model=bench.manifest.key, argv=sys.argv
    )
    failed = []
    for name in arguments.only:
        started = time.perf_counter()
        try:
            STEPS[name](bench)
        except Exception as error:  # the other steps may still work
            failed.append(name)
            bench.log_figures(name, error=f"{type(error).__name__}: {error}")
        bench.log_figures("seconds", of=name, seconds=round(time.perf_counter() - started, 1))
    print("failed:", ", ".join(failed) or "nothing", flush=True)
    sys.exit(bool(failed))


STEPS: dict[str, Callable[[Bench], None]] = {
    "arithmetic": arithmetic,
    "engine": engine,
    "device": device,
    "reference": reference,
    "latency": latency,
    "variants": variants,
    "throughput": throughput,
    "memory": memory,
    "halving": halving,
    "full": full,
    "faults": faults,
}

if __name__ == "__main__":
    main()
