"""Compares models in OpenVINO, the engine alone, batch of one, in interleaved runs.

    python -m benchmarks.host.fill_speed BASELINE models/photos/5 models/photos-int8/1 [--json fill_speed.json]

The first model is also measured in fp32; every model in the precision that the engine chooses here, which is named.
The ratio is that of the first model's median to each one's, both in the chosen precision.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import openvino

from engines.cpu.openvino_cpu import OpenVinoEngine
from engines.manifest import ONNX_FILE, read_manifest

Run = Callable[[dict[str, Any]], object]


def main() -> None:
    """Print a row for each model and side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--sides", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cache-dir", type=Path, default=Path("cache"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    runs = {"fp32": in_fp32(arguments.models[0], arguments.threads)}
    for directory in arguments.models:
        engine = OpenVinoEngine(
            directory, read_manifest(directory), threads=arguments.threads, cache_dir=arguments.cache_dir
        )
        print(f"{engine.manifest.key}: {engine.precision} ({engine.note})", flush=True)
        runs[f"{engine.manifest.key} {engine.precision}"] = engine.infer
    first = f"{read_manifest(arguments.models[0]).key} fp32, forced"
    runs = {first: runs.pop("fp32")} | runs
    rows = []
    for side in arguments.sides:
        medians = measured_ms(runs, hole_feed(side), arguments.runs)
        chosen = medians[list(runs)[1]]
        for name, ms in medians.items():
            rows.append({"side": side, "model": name, "ms": round(ms, 2), "ratio": round(chosen / ms, 3)})
            print(f"{side:5} {name:32} {ms:8.1f} ms  {chosen / ms:5.2f} ×", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", "utf-8")


def in_fp32(directory: Path, threads: int) -> Run:
    """Return a call of a model that computes in FP32, whatever the processor has."""
    config = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads}
    request = openvino.Core().compile_model(str(directory / ONNX_FILE), "CPU", config).create_infer_request()
    return lambda feed: request.infer(feed, share_inputs=True, share_outputs=True)


def hole_feed(side: int) -> dict[str, Any]:
    """Return a picture of noise with a square hole over a quarter of it."""
    mask = np.zeros((1, 1, side, side), np.float32)
    mask[..., side // 4 : 3 * side // 4, side // 4 : 3 * side // 4] = 1
    return {"image": np.random.default_rng(0).random((1, 3, side, side), np.float32), "mask": mask}


def measured_ms(runs: dict[str, Run], feed: dict[str, Any], count: int) -> dict[str, float]:
    """Return the median milliseconds of each call; calls alternate, after two of each to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for index in range(count + 2):
        for name, run in runs.items():
            started = time.perf_counter()
            run(feed)
            if index >= 2:
                seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) * 1e3 for name, values in seconds.items()}


if __name__ == "__main__":
    main()
