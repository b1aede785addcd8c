"""Records the device pipeline with torch's profiler and plots the trace as a timeline.

    python -m benchmarks.gpu.timeline record --model models/NAME/1 --engine inductor --trace trace.json
    python -m benchmarks.gpu.timeline draw --trace trace.json --plot timeline.png

Rows of the picture are CUDA streams, bars are copies and kernels as CUPTI recorded them, coloured by the batch during
whose launch the host queued them. chrome://tracing and Perfetto open the same trace.
"""

from __future__ import annotations

import argparse
import json
from bisect import bisect_right
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

_BATCH = "retouch batch "


class Bar(NamedTuple):
    """One copy or kernel on a stream; times in microseconds."""

    stream: int
    start: float
    length: float
    batch: int
    name: str


def record(arguments: argparse.Namespace) -> None:
    """Keep `depth` batches in flight and write the trace of a few of them."""
    import numpy as np  # noqa: PLC0415 -- drawing needs none of these
    from torch.profiler import ProfilerActivity, profile, record_function  # noqa: PLC0415

    from benchmarks.gpu.bench import random_samples  # noqa: PLC0415
    from engines.engine_choice import EngineOptions, open_engine  # noqa: PLC0415
    from engines.manifest import read_manifest  # noqa: PLC0415
    from service.core.pictures import Size  # noqa: PLC0415
    from service.devices.gpu import open_gpu_device  # noqa: PLC0415

    manifest = read_manifest(arguments.model)
    options = EngineOptions(arguments.engine, cache_dir=arguments.cache, max_batch=arguments.batch)
    engine = open_engine(arguments.model, manifest, options)
    device = open_gpu_device(engine, arguments.depth)
    assert device is not None
    tile = Size(*max(manifest.size.tile_sizes(), key=lambda size: size[0] * size[1]))
    samples = random_samples(manifest, np.random.default_rng(0), arguments.batch, tile)
    waiting: list[Any] = []

    def work(count: int) -> None:
        for number in range(count):
            if len(waiting) == arguments.depth:
                device.collect(waiting.pop(0))
            with record_function(f"{_BATCH}{number}"):
                waiting.append(device.launch(engine, samples))

    work(12)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        work(arguments.batches)
        while waiting:
            device.collect(waiting.pop(0))
    profiler.export_chrome_trace(str(arguments.trace))
    device.close()
    print(f"{arguments.trace}: {len(read_bars(arguments.trace))} copies and kernels", flush=True)


def read_bars(trace: Path) -> list[Bar]:
    """Read the device activities of a trace, each with the batch that queued it."""
    events = json.loads(trace.read_text())["traceEvents"]
    launches = sorted(
        (event["ts"], event["ts"] + event["dur"], int(event["name"].removeprefix(_BATCH)))
        for event in events
        if event.get("cat") == "user_annotation" and str(event.get("name", "")).startswith(_BATCH)
    )
    queued = {
        event["args"]["correlation"]: event["ts"]
        for event in events
        if event.get("cat") in {"cuda_runtime", "cuda_driver"} and "correlation" in event.get("args", {})
    }
    starts = [start for start, _, _ in launches]
    bars = []
    for event in events:
        if event.get("cat") not in {"kernel", "gpu_memcpy", "gpu_memset"}:
            continue
        at = queued.get(event["args"].get("correlation"))
        index = bisect_right(starts, at) - 1 if at is not None else -1
        if index >= 0 and at is not None and at <= launches[index][1]:
            bars.append(Bar(event["args"]["stream"], event["ts"], event["dur"], launches[index][2], event["name"]))
    return bars


def draw(arguments: argparse.Namespace) -> None:
    """Plot a row for each stream, in the order in which a batch uses them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 -- recording needs none
    from matplotlib.figure import Figure  # noqa: PLC0415

    bars = read_bars(arguments.trace)
    origin = min(bar.start for bar in bars)
    first: dict[int, float] = {}
    for bar in bars:
        first[bar.stream] = min(first.get(bar.stream, bar.start), bar.start)
    rows = {stream: row for row, stream in enumerate(sorted(first, key=lambda stream: first[stream]))}
    figure = Figure(figsize=(11, 1.4 + 0.6 * len(rows)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    spans: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for bar in bars:
        spans[bar.stream, bar.batch].append(((bar.start - origin) / 1e3, bar.length / 1e3))
    for (stream, batch), pieces in spans.items():
        axes.broken_barh(pieces, (rows[stream] - 0.38, 0.76), facecolors=f"C{batch % 10}", linewidth=0)
    names = ["copy in, convert", "engine", "convert, copy out"] if len(rows) == 3 else [f"stream {s}" for s in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.set(xlabel="ms", title=arguments.title)
    for batch in sorted({bar.batch for bar in bars}):
        axes.plot([], [], color=f"C{batch % 10}", linewidth=6, label=f"batch {batch + 1}")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=8, fontsize=8, frameon=False)
    figure.savefig(arguments.plot, dpi=110)


def main() -> None:
    """Record on a GPU host, or plot anywhere."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["record", "draw"], help="record a trace, or draw one")
    parser.add_argument("--model", type=Path, default=Path("models/photos/5"), help="folder of the model version")
    parser.add_argument("--engine", default="auto", help="runtime of the model")
    parser.add_argument("--cache", type=Path, default=Path("/tmp/retouch-cache"), help="folder for compiled engines")
    parser.add_argument("--batch", type=int, default=32, help="number of samples in a batch")
    parser.add_argument("--depth", type=int, default=3, help="batches in flight at the same time")
    parser.add_argument("--batches", type=int, default=6, help="number of batches")
    parser.add_argument("--trace", type=Path, default=Path("trace.json"), help="file for the trace of the profiler")
    parser.add_argument("--plot", type=Path, default=Path("timeline.png"), help="file for the plot")
    parser.add_argument("--title", default="Batches on three CUDA streams", help="title of the plot")
    arguments = parser.parse_args()
    (record if arguments.what == "record" else draw)(arguments)


if __name__ == "__main__":
    main()
