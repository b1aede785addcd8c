"""Measures generators at their public width on a CPU, in FP32: OpenVINO, ONNX Runtime and eager torch.

    python -m benchmarks.host.family_speed "MI-GAN 256" "MI-GAN 512" --rounds 20 [--memory] [--json FILE]

A name is a part of a name in benchmarks/gpu_engines/family_cases.py. Weights are random, because times do not depend on
them. torch runs the public net, the engines its FP32 graph, all at batch 1 with the same number of threads. Each round
calls each of them once, so that a change of the machine's speed affects all alike; ratios are medians over rounds,
above 1 where the engine is faster than torch. With `--memory` each also runs in a separate process, which reports how
much its memory grew from before the load to its peak. OpenVINO's default is bf16 if the processor supports it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime
import openvino
import psutil
import torch
from numpy.typing import NDArray

from benchmarks.gpu_engines.family_cases import CASES, Case, build_net
from benchmarks.host.model_speed import Run, in_openvino, rounds_ms
from engines.base import Feed
from engines.manifest import ONNX_FILE
from export.generators import FAMILIES
from export.onnx_graph import example_inputs, write_graph
from export.parity import torch_backend
from export.parity_inputs import draw_mask

RUNTIMES = ("torch eager", "openvino", "onnxrt", "openvino by default")


def main() -> None:
    """Print one line for each generator and way to run it."""
    options = _options()
    torch.set_num_threads(options.threads)
    chosen = {case.key: case for case in CASES if any(name.lower() in case.name.lower() for name in options.names)}
    print(f"random weights, {options.threads} threads, torch {torch.__version__}, openvino {openvino.__version__}")
    report = {f"{case.name} {case.size}": measure(case, options) for case in chosen.values()}
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


def measure(case: Case, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Measure one generator and print its rows: milliseconds, images/s, and the speed relative to torch."""
    with tempfile.TemporaryDirectory() as folder:
        write_graph(FAMILIES[case.family].lower(build_net(case), case.parsed), case.interface, Path(folder, ONNX_FILE))
        runs = {name: _opened(name, case, Path(folder), options.threads) for name in RUNTIMES}
        times: list[list[float]] = []
        for warm_up in (options.warm_up, *[0] * (options.rounds - 1)):
            times += rounds_ms(list(runs.values()), _feed(case), 1, warm_up=warm_up)
            print(f"{case.name} {case.size}, ms: {', '.join(f'{ms:.0f}' for ms in times[-1])}", flush=True)
        runs.clear()
        grown = {name: _growth_mib(name, case, Path(folder), options.threads) for name in RUNTIMES if options.memory}
    rows = {}
    for index, name in enumerate(RUNTIMES):
        ms = median(row[index] for row in times)
        rows[name] = {
            "ms": round(ms, 1),
            "images_per_s": round(1e3 / ms, 2),
            "best_ms": round(min(row[index] for row in times), 1),
            "times_as_fast": round(median(row[0] / row[index] for row in times), 2),
            **({"grew_by_mib": grown[name]} if grown else {}),
        }
        print(f"{case.name} {case.size}, {name}: {rows[name]}", flush=True)
    return rows


def _opened(name: str, case: Case, model: Path, threads: int) -> Run:
    if name.startswith("openvino"):
        return in_openvino(model, threads, "f32" if name == "openvino" else None)
    if name == "onnxrt":
        return _in_onnxruntime(model, threads)
    return torch_backend(FAMILIES[case.family].wrap(build_net(case), case.parsed).eval())


def _growth_mib(name: str, case: Case, model: Path, threads: int) -> int:
    """Run the generator once in a separate process; returns the MiB by which its memory grew to its peak."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_grow, (name, case, model, threads))


def _grow(name: str, case: Case, model: Path, threads: int) -> int:
    torch.set_num_threads(threads)
    before = psutil.Process().memory_info().rss
    _opened(name, case, model, threads)(_feed(case))
    peak = Path("/proc/self/status").read_text("utf-8").split("VmHWM:")[1].split()[0]  # rusage counts the parent's too
    return round((int(peak) * 1024 - before) / 2**20)


def _in_onnxruntime(model: Path, threads: int) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # ONNX Runtime warns about every initializer that it moves
    session = onnxruntime.InferenceSession(str(model / ONNX_FILE), options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, dict(feed))


def _feed(case: Case) -> Feed:
    """Return noise of the case's size, and strokes as its mask."""
    rng = np.random.default_rng(0)
    arrays: Mapping[str, NDArray[Any]] = {
        str(spec.name): rng.random(example.shape, np.float32).astype(spec.dtype)
        for spec, example in zip(case.interface.inputs, example_inputs(case.interface, batch=1), strict=True)
    }
    return {**arrays, **({"mask": draw_mask("ordinary", case.side, rng)[None, None]} if "mask" in arrays else {})}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", help="parts of names in benchmarks/gpu_engines/family_cases.py")
    parser.add_argument("--rounds", type=int, default=20, help="number of rounds")
    parser.add_argument("--warm-up", type=int, default=3, help="calls of each before the first round")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of the engine")
    parser.add_argument("--memory", action="store_true", help="also measure the memory of each, in a separate process")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


if __name__ == "__main__":
    main()
