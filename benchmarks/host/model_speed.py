"""Compares models in their engines alone. Each round calls each once, so a change of the machine's speed affects all.

    python -m benchmarks.host.model_speed MODEL OTHER --sizes 256 512 1024 --rounds 40 [--json FILE]

Each model runs in the engine that would serve it on this machine, at batch 1, on a picture of noise with a box as its
hole. The first model is the reference: a ratio above 1 means that the other is faster. Ratios are medians over rounds.
With `--fp32` the first model is measured in OpenVINO in FP32 too. `--clock processor --threads 1` counts the CPU time
of the process, which other processes on the machine affect little.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import openvino

from engines.base import Feed
from engines.engine_choice import EngineOptions, open_engine
from engines.manifest import ONNX_FILE, read_manifest

WARM_UP = 3
Run = Callable[[Feed], object]
Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "processor": time.process_time}


def feed_of(size: int) -> Feed:
    """Return an image of noise and a hole of a quarter of its area, 1×C×size×size each."""
    image = np.random.default_rng(0).random((1, 3, size, size), np.float32)
    mask = np.zeros((1, 1, size, size), np.float32)
    mask[..., size // 4 : 3 * size // 4, size // 4 : 3 * size // 4] = 1
    return {"image": image, "mask": mask}


def rounds_ms(
    runs: Sequence[Run], feed: Feed, rounds: int, clock: Clock = time.perf_counter, *, warm_up: int = WARM_UP
) -> list[list[float]]:
    """Return the milliseconds of every run in every round; `clock` returns seconds."""
    for _ in range(warm_up):
        for run in runs:
            run(feed)
    found: list[list[float]] = []
    for _ in range(rounds):
        found.append([])
        for run in runs:
            started = clock()
            run(feed)
            found[-1].append((clock() - started) * 1e3)
    return found


def in_openvino(model: Path, threads: int, precision: str | None = "f32") -> Run:
    """Return a call of a model in a given precision, or in the one that OpenVINO chooses."""
    config = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
    config |= {} if precision is None else {"INFERENCE_PRECISION_HINT": precision}
    request = openvino.Core().compile_model(str(model / ONNX_FILE), "CPU", config).create_infer_request()
    return lambda feed: request.infer(feed, share_inputs=True, share_outputs=True)


def main() -> None:
    """Print one line for each size."""
    options = _options()
    settings = EngineOptions(threads=options.threads, cache_dir=options.cache_dir)
    runs: dict[str, Run] = {}
    report: dict[int, Any] = {}
    with ExitStack() as stack:
        for model in options.models:
            engine = stack.enter_context(closing(open_engine(model, read_manifest(model), settings)))
            runs[f"{engine.manifest.key}, {engine.name} {engine.precision}"] = engine.infer
        if options.fp32:
            runs[f"{read_manifest(options.models[0]).key}, openvino fp32"] = in_openvino(
                options.models[0], options.threads
            )
        for size in options.sizes:
            found = rounds_ms(list(runs.values()), feed_of(size), options.rounds, CLOCKS[options.clock])
            report[size] = {
                name: {
                    "median_ms": round(median(row[index] for row in found), 2),
                    "best_ms": round(min(row[index] for row in found), 2),
                    "times_as_fast": round(median(row[0] / row[index] for row in found), 3),
                }
                for index, name in enumerate(runs)
            }
            print(size, report[size], flush=True)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, help="folders of the model versions")
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[256, 512, 1024], help="sides of the pictures in pixels"
    )
    parser.add_argument("--rounds", type=int, default=40, help="number of rounds")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of the engine")
    parser.add_argument(
        "--clock", choices=tuple(CLOCKS), default="wall", help="clock of the figures: wall, or CPU time of the process"
    )
    parser.add_argument("--fp32", action="store_true", help="measure the first model in OpenVINO in FP32, too")
    parser.add_argument("--cache-dir", type=Path, default=Path("cache"), help="folder for compiled engines")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
