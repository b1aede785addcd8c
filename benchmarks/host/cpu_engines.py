"""Measures milliseconds per image of the CPU engines alone.

    python -m benchmarks.host.cpu_engines [MODEL_DIR …] --threads 2

Rows: OpenVINO with the latency hint (as shipped) and with the throughput hint and two requests in flight, one compile
for all shapes against one for each, bf16 and fp32; and ONNX Runtime. Each figure is the fastest of several runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov

from engines.base import BatchShape, Feed, blank_feed
from engines.manifest import ONNX_FILE, Manifest, read_manifest
from engines.onnxrt import OnnxRuntimeEngine


def main() -> None:
    """Print one line for each model, precision, size and batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "models",
        nargs="*",
        type=Path,
        default=[Path("models/photos/5"), Path("models/facades/2")],
        help="folders of the model versions",
    )
    parser.add_argument("--threads", type=int, default=2, help="CPU threads of the engine")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4, 8], help="batch sizes")
    parser.add_argument("--runs", type=int, default=3, help="number of runs")
    arguments = parser.parse_args()
    print(f"{'model':10} {'size':>8} {'batch':>5}  ms per image, {arguments.threads} threads")
    for directory in arguments.models:
        manifest = read_manifest(directory)
        for height, width in dict.fromkeys((side, side) for side, _ in manifest.size.tile_sizes()):
            for batch in arguments.batches:
                feed = blank_feed(manifest, BatchShape(batch, height, width))
                cells = [
                    f"{name} {fastest_s(run, arguments.runs) / images * 1e3:.1f}"
                    for name, images, run in variants(directory, manifest, feed, arguments.threads)
                ]
                print(f"{manifest.name:10} {f'{width}×{height}':>8} {batch:5}  {', '.join(cells)}", flush=True)


def fastest_s(run: Callable[[], object], runs: int) -> float:
    """Return the shortest time of `runs` calls, after a warm-up call."""
    run()
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def variants(
    directory: Path, manifest: Manifest, feed: Feed, threads: int
) -> Iterator[tuple[str, int, Callable[[], object]]]:
    """Yield the variants to time: name, images per call, and the call."""
    batch = len(next(iter(feed.values())))
    for precision in ("bf16", "f32"):
        yield precision, batch, _once(_compiled(directory, precision, "LATENCY", threads), feed)
        yield f"{precision} fixed", batch, _once(_compiled(directory, precision, "LATENCY", threads, feed), feed)
        throughput = _compiled(directory, precision, "THROUGHPUT", threads)
        yield f"{precision} throughput×2", 2 * batch, _two_at_once(throughput, feed)
    reference = OnnxRuntimeEngine(directory, manifest, threads=threads)
    yield "onnxrt", batch, lambda: reference.infer(feed)


def _compiled(directory: Path, precision: str, hint: str, threads: int, fixed_to: Feed | None = None) -> Any:
    core = ov.Core()
    model = core.read_model(directory / ONNX_FILE)
    if fixed_to:
        model.reshape({name: list(array.shape) for name, array in fixed_to.items()})
    config = {"INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": hint, "INFERENCE_NUM_THREADS": threads}
    return core.compile_model(model, "CPU", config)


def _once(model: Any, feed: Feed) -> Callable[[], object]:
    request = model.create_infer_request()
    return lambda: request.infer(dict(feed), share_inputs=True, share_outputs=True)


def _two_at_once(model: Any, feed: Feed) -> Callable[[], object]:
    requests = [model.create_infer_request() for _ in range(2)]
    own = [{name: np.array(array) for name, array in feed.items()} for _ in requests]

    def run() -> None:
        for request, inputs in zip(requests, own, strict=True):
            request.start_async(inputs, share_inputs=True)
        for request in requests:
            request.wait()

    return run


if __name__ == "__main__":
    main()
