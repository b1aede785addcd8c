"""Measures one engine on one model, in a process that compare.py starts twice: to compile and to measure.

    python -m benchmarks.gpu_engines.engine_jobs --work DIR --batches 1 8 32 MODEL_DIR ENGINE prepare|measure

It also runs under the Python of TensorRT, which has no torch.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_engines.gpu_lock import gpu_lock
from benchmarks.harness.engine_rate import RUNS, median_ms
from engines.base import Array, BatchShape, Engine
from engines.cuda.api import open_cuda
from engines.engine_choice import EngineOptions, open_engine
from engines.manifest import Manifest, MultipleSize, read_manifest
from engines.onnxrt import OnnxRuntimeEngine
from engines.parity.comparison import compare
from engines.parity.probes import probe_feeds

REFERENCE_FILE = "reference.npz"


@dataclass(frozen=True)
class Job:
    """One engine on one model."""

    model: Path
    engine: str
    arguments: argparse.Namespace

    @property
    def out(self) -> Path:
        """The file that the process writes its measurements to, one per line."""
        return Path(self.arguments.work) / f"{self.model.parent.name}-{self.engine}.jsonl"

    def log_figures(self, **facts: Any) -> None:
        """Write down a measurement or an error."""
        with self.out.open("a") as file:
            file.write(json.dumps({"model": self.model.parent.name, "engine": self.engine, **facts}) + "\n")


def main() -> None:
    """Run one step of one job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="directory such as models/photos/5")
    parser.add_argument("engine", help="engine of the job")
    parser.add_argument("step", choices=["prepare", "measure"], help="prepare compiles, measure measures")
    parser.add_argument("--work", required=True, help="folder for caches, plans and measurements")
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8, 32], help="batch sizes")
    parser.add_argument("--trt-level", type=int, default=3, help="TensorRT's builder optimisation level, 0 to 5")
    parser.add_argument("--run-s", type=float, default=0.5, help="seconds of one run of a figure")
    arguments = parser.parse_args()
    run_job(Job(arguments.model, arguments.engine, arguments), arguments.step)


def run_job(job: Job, step: str) -> None:
    """Fill the caches, or measure; an error is recorded as a result."""
    manifest = _of_one_size(read_manifest(job.model))
    try:
        if step == "prepare":
            _fill_caches(job, manifest)
        elif job.engine == "eager":
            _measure_eager(job, manifest)
        elif job.engine == "public":
            _measure_public(job, manifest)
        else:
            _measure_engine(job, manifest)
    except Exception as error:
        job.log_figures(error=f"{type(error).__name__}: {' '.join(str(error).split())[:400]}")
        raise


def _fill_caches(job: Job, manifest: Manifest) -> None:
    began = time.monotonic()
    engine, shapes = _opened(job, manifest), _shapes(job, manifest)
    engine.warm_up(shapes)
    engine.close()
    job.out.with_suffix(".prepared").write_text(json.dumps({"cold_s": round(time.monotonic() - began, 1)}))


def _opened(job: Job, manifest: Manifest) -> Engine:
    options = EngineOptions(
        job.engine,
        cache_dir=Path(job.arguments.work) / "cache",
        max_batch=max(job.arguments.batches),
        trt_level=job.arguments.trt_level,
    )
    return open_engine(job.model, manifest, options)


def _shapes(job: Job, manifest: Manifest) -> list[BatchShape]:
    return [BatchShape(batch, *max(manifest.size.tile_sizes())) for batch in job.arguments.batches]


def _of_one_size(manifest: Manifest) -> Manifest:
    """Return the manifest with only the largest square tile: each further size multiplies the build time."""
    size = manifest.size
    return (
        manifest
        if not isinstance(size, MultipleSize)
        else manifest.model_copy(update={"size": size.model_copy(update={"sides": (max(size.sides),)})})
    )


def _measure_engine(job: Job, manifest: Manifest) -> None:
    began = time.monotonic()
    engine: Any = _opened(job, manifest)
    prepared = job.out.with_suffix(".prepared")
    cold = json.loads(prepared.read_text()) if prepared.exists() else {}
    job.log_figures(**cold, opened_s=round(time.monotonic() - began, 1), **_quality(job, manifest, engine))
    cuda, run_s = open_cuda(), job.arguments.run_s
    shapes = _shapes(job, manifest)
    for shape in shapes:  # loading from the cache needs no exclusive use of the GPU
        engine.infer(_feed(manifest, shape))
    with gpu_lock():
        for shape in shapes:
            engine.infer(_feed(manifest, shape))
            stream = cuda.stream()
            ms = median_ms(cuda, stream, lambda shape=shape, stream=stream: engine.enqueue(shape, stream), run_s)
            layers = _layer_ms(engine, shape, stream) if job.engine == "trt" else {}
            job.log_figures(batch=shape.batch, size=f"{shape.width}×{shape.height}", ms=round(ms, 4), **layers)
    engine.close()


def _quality(job: Job, manifest: Manifest, engine: Engine) -> dict[str, Any]:
    """Return the lowest PSNR over the probes, against the public net in FP32 or the model's graph on the CPU."""
    path = job.model / REFERENCE_FILE
    if path.exists():
        kept = np.load(path)
        wanted: dict[str, Array] = {name: kept[name] for name in kept.files}
        against = "public net, FP32"
    else:
        reference = OnnxRuntimeEngine(job.model, manifest)
        wanted = {name: np.array(reference.infer(feed)["output"]) for name, feed in probe_feeds(manifest)}
        against = "its graph on the CPU"
    feeds = dict(probe_feeds(manifest))
    names = {id(feed): name for name, feed in feeds.items()}
    verdict = compare(lambda feed: wanted[names[id(feed)]], lambda feed: engine.infer(feed)["output"], feeds.items())
    return {"psnr_db": verdict.psnr_db and round(verdict.psnr_db, 1), "finite": verdict.finite, "against": against}


def _feed(manifest: Manifest, shape: BatchShape) -> dict[str, Array]:
    """Repeat the probe of the shape's size to a batch; zeros would compute faster."""
    rows = dict(next(probe_feeds(manifest))[1])
    return {
        name: np.ascontiguousarray(np.concatenate([array] * shape.batch)[: shape.batch]) for name, array in rows.items()
    }


def _layer_ms(engine: Any, shape: BatchShape, stream: Any) -> dict[str, Any]:
    """Return the time of each layer of a plan, slowest first, without a CUDA graph."""
    runtime = engine._runtime  # noqa: SLF001 -- engines do not expose their layers to a server
    spent: dict[str, float] = {}
    times = 10

    class Profiler(runtime._library.module.IProfiler):  # type: ignore[name-defined]  # noqa: SLF001 -- as above
        def report_layer_time(self, name: str, ms: float) -> None:
            spent[name] = spent.get(name, 0.0) + ms / times

    context = runtime._runners[shape].context  # noqa: SLF001 -- as above
    context.profiler = profiler = Profiler()
    for _ in range(times):
        context.execute_async_v3(int(stream.handle))
        stream.synchronise()
    del profiler
    slowest = sorted(spent.items(), key=lambda item: -item[1])
    return {
        "layers": len(spent),
        "layers_ms": round(sum(spent.values()), 3),
        "slowest": [[name[:160], round(ms, 4)] for name, ms in slowest[:20]],
    }


def _measure_eager(job: Job, manifest: Manifest) -> None:
    """Measure the lowered net eagerly and under a CUDA graph."""
    import torch  # noqa: PLC0415 -- TensorRT's Python environment has none

    torch.set_grad_enabled(False)
    module = torch.export.load(job.model / "program.pt2")
    from torch.export.passes import move_to_device_pass  # noqa: PLC0415 -- as above

    net = move_to_device_pass(module, "cuda").module()
    for shape in _shapes(job, manifest):
        feed = [torch.from_numpy(array).cuda() for array in _feed(manifest, shape).values()]
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                net(*feed)
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            net(*feed)
        run_s = job.arguments.run_s
        eager_ms, graph_ms = (_torch_ms(torch, run, run_s) for run in (lambda: net(*feed), graph.replay))  # noqa: B023
        job.log_figures(
            batch=shape.batch,
            size=f"{shape.width}×{shape.height}",
            ms=round(eager_ms, 4),
            graph_ms=round(graph_ms, 4),
        )


def _measure_public(job: Job, manifest: Manifest) -> None:
    """Measure the public net as published, LaMa with torch.fft: FP32 with torch's defaults, traced, and FP16."""
    import torch  # noqa: PLC0415 -- as above

    from benchmarks.gpu_engines.engine_models import MODELS  # noqa: PLC0415 -- loads torch
    from benchmarks.gpu_engines.family_cases import build_net  # noqa: PLC0415 -- as above
    from export.generators import FAMILIES  # noqa: PLC0415 -- as above

    torch.set_grad_enabled(False)
    case, device, run_s = MODELS[manifest.name], "cuda" if torch.cuda.is_available() else "cpu", job.arguments.run_s
    net = FAMILIES[case.family].wrap(build_net(case), case.parsed).eval().to(device)
    for shape in _shapes(job, manifest):
        feed = [torch.from_numpy(array).to(device) for array in _feed(manifest, shape).values()]
        traced = torch.jit.trace(net, feed, check_trace=False)
        size = f"{shape.width}×{shape.height}"
        half = torch.autocast(device, torch.float16 if device == "cuda" else torch.bfloat16)
        with gpu_lock():
            found = {"ms": _torch_ms(torch, lambda: net(*feed), run_s)}  # noqa: B023
            found["traced_ms"] = _torch_ms(torch, lambda: traced(*feed), run_s)  # noqa: B023
            job.log_figures(batch=shape.batch, size=size, **{name: round(ms, 4) for name, ms in found.items()})
            with half:
                half_ms = _torch_ms(torch, lambda: net(*feed), run_s)  # noqa: B023
                job.log_figures(batch=shape.batch, size=size, half_ms=round(half_ms, 4))


def _torch_ms(torch: Any, run: Any, run_s: float) -> float:
    time_runs = _on_gpu_ms(torch, run) if torch.cuda.is_available() else lambda times: _on_cpu_ms(run, times)
    time_runs(3)
    times = max(5, int(run_s * 1e3 / time_runs(5)))
    return sorted(time_runs(times) for _ in range(RUNS))[RUNS // 2]


def _on_gpu_ms(torch: Any, run: Any) -> Callable[[int], float]:
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def time_runs(times: int) -> float:
        begun.record()
        for _ in range(times):
            run()
        ended.record()
        ended.synchronize()
        return float(begun.elapsed_time(ended)) / times

    return time_runs


def _on_cpu_ms(run: Any, times: int) -> float:
    """Return the milliseconds of a call on a CPU, where only `public` runs: to test this script without a GPU."""
    began = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - began) / times * 1e3


if __name__ == "__main__":
    main()
