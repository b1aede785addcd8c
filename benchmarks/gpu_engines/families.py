"""Measures ms and images/s of every generator at its public width on one GPU, FP16, engine alone.

    PYTHONPATH=. python3 -m benchmarks.gpu_engines.families --json results/families.json --plot results/families.png

Nets have random weights, are lowered and converted to FP16 by the code of export, and run (a) eager, (b) eager under a
CUDA graph, (c) as `program.pt2` in the `inductor` engine, whose CUDA graph is replayed. Inputs are already on the GPU;
times are medians of `--runs` calls between CUDA events. The first output of each batch is compared with the public net
in FP32 on the same GPU. Needs torch, onnx, numpy, pydantic and structlog, and matplotlib for the plot. Other processes
write programs during the measurement, so the times of eager rows, which the CPU limits, are an upper bound.

Every row is written to FILE.jsonl as soon as it is measured; rows for which `--seconds` leaves no time are named. The
last rows repeat the rows with reference figures under `torch.backends.cudnn.benchmark`, which the engine does not use.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import engines.cuda.inductor
from benchmarks.gpu_engines.family_cases import CASES, TINY_CASES, Case, build_net
from benchmarks.gpu_engines.family_report import Row, as_markdown, save_plot
from engines.base import BatchShape, Feed
from engines.cuda.inductor import PROGRAM_FILE, InductorEngine
from engines.manifest import FixedSize, Manifest, Parity
from engines.parity.probes import probe_feeds
from export.generators import FAMILIES
from export.program import in_gpu_layout, write_program

Tensors = tuple[torch.Tensor, ...]


def main() -> None:
    """Measure until everything is done or the time is used up; print the tables."""
    arguments = _arguments()
    started = time.monotonic()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False  # the reference is true FP32
    torch.set_grad_enabled(False)
    # parity is measured here, so that no ONNX graph is needed
    engines.cuda.inductor.require_parity = lambda *_: "compared with torch FP32 by the benchmark"  # type: ignore[attr-defined]
    chosen = _chosen(TINY_CASES if arguments.tiny else CASES, arguments.only, arguments.batches)
    rows: list[Row] = []
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, _programs(chosen, Path(folder)) as programs:
        for case, program in zip(chosen, programs, strict=True):
            left_s = arguments.seconds - (time.monotonic() - started)
            for row in _measure_case(case, program, Path(folder), arguments, left_s):
                rows.append(row)
                line = json.dumps({"at_s": round(time.monotonic() - started, 1), **asdict(row)})
                print(line, flush=True)
                with arguments.json.with_suffix(".jsonl").open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
    facts = _facts(arguments)
    arguments.json.write_text(json.dumps({"host": facts, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")
    print(as_markdown(rows, facts))
    if arguments.plot:
        print(save_plot(rows, arguments.plot, str(facts["gpu"])))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--json", type=Path, default=Path("results/families.json"), help="write the figures to this file"
    )
    parser.add_argument("--plot", type=Path, help="plot the figures to this file")
    parser.add_argument("--seconds", type=float, default=480, help="seconds after which no further row is started")
    parser.add_argument("--runs", type=int, default=30, help="number of runs")
    parser.add_argument(
        "--only", nargs="*", default=[], help="measure only generators whose name contains one of these"
    )
    parser.add_argument("--batches", nargs="*", type=int, default=[], help="batch sizes, in place of each case's own")
    parser.add_argument("--device", default="cuda:0", help="cpu: to test the script, without graphs or torch.compile")
    parser.add_argument("--tiny", action="store_true", help="small nets, to test the script")
    return parser.parse_args()


def _chosen(cases: Sequence[Case], only: Sequence[str], batches: Sequence[int]) -> list[Case]:
    named = [case for case in cases if not only or any(part in case.name for part in only)]
    return [replace(case, batches=tuple(batches)) for case in named] if batches else named


def _facts(arguments: argparse.Namespace) -> dict[str, Any]:
    on_gpu = arguments.device != "cpu"
    return {
        "gpu": torch.cuda.get_device_name(arguments.device) if on_gpu else "no GPU (a trial of the script)",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "runs": arguments.runs,
    }


@contextmanager
def _programs(cases: list[Case], folder: Path) -> Iterator[list[Future[None]]]:
    """Write the programs in other processes, one per case; equal nets share one."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max(1, min(4, (os.cpu_count() or 2) // 3)), mp_context=context) as pool:
        distinct = {case.key: case for case in reversed(cases)}
        order = [case for case in cases if distinct[case.key] is case]
        futures = {case.key: pool.submit(_write_program, case, folder / case.key) for case in order}
        yield [futures[case.key] for case in cases]
        pool.shutdown(cancel_futures=True)


def _write_program(case: Case, folder: Path) -> None:
    torch.set_num_threads(2)
    torch.set_grad_enabled(False)
    folder.mkdir()
    lowered = FAMILIES[case.family].lower_for_program(build_net(case), case.parsed)
    write_program(lowered, case.interface, "fp16", folder / PROGRAM_FILE)


def _measure_case(
    case: Case, program: Future[None], folder: Path, arguments: argparse.Namespace, left_s: float
) -> Iterator[Row]:
    """Yield a row for each batch size; an error ends the rows of this generator only."""
    deadline = time.monotonic() + left_s
    if left_s <= 0:
        yield from (Row(case.name, case.size, batch, error="not measured: out of time") for batch in case.batches)
        return
    done = 0
    bench: _Bench | None = None
    try:
        torch.backends.cudnn.benchmark = case.cudnn_benchmark
        bench = _Bench(case, folder / case.key, arguments.device, arguments.runs)
        for batch in case.batches:
            if time.monotonic() > deadline:
                yield Row(case.name, case.size, batch, error="not measured: out of time")
            else:
                yield bench.row(batch, program)
            done += 1
        bench.close()
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        yield from (Row(case.name, case.size, batch, error=reason) for batch in case.batches[done:])
    bench = None  # frees its memory for the next case
    torch._dynamo.reset()  # noqa: SLF001 -- the public torch.compiler.reset() is this
    gc.collect()
    if arguments.device != "cpu":
        torch.cuda.empty_cache()


class _Bench:
    """One generator on the device in its three forms, with its reference output."""

    def __init__(self, case: Case, folder: Path, device: str, runs: int) -> None:
        self.case, self.folder, self.device, self.runs = case, folder, device, runs
        self.manifest = _manifest(case)
        net = build_net(case)
        family = FAMILIES[case.family]
        self.eager = in_gpu_layout(family.lower_for_program(net, case.parsed), "fp16").to(device)
        self.two = dict(next(iter(probe_feeds(self.manifest)))[1])
        first = self._tensors(self._feed(1))
        self.wanted = family.wrap(net.to(device), case.parsed).eval().to(device)(*first).float().cpu().numpy()
        self.engine: InductorEngine | None = None

    def row(self, batch: int, program: Future[None]) -> Row:
        """Measure one batch size."""
        feed = self._feed(batch)
        eager_ms, graph_ms = self._eager_ms(self._tensors(feed))
        program.result()
        if self.engine is None:
            self.engine = self._opened()
        began = time.monotonic()
        output = self.engine.infer(feed)["output"]
        compile_s = time.monotonic() - began
        return Row(
            self.case.name,
            self.case.size,
            batch,
            eager_ms=eager_ms,
            graph_ms=graph_ms,
            compiled_ms=self._compiled_ms(self.engine, batch),
            compile_s=round(compile_s, 1),
            psnr_db=_psnr_db(self.wanted, output[:1]),
            finite=bool(np.isfinite(output).all() and np.isfinite(self.wanted).all()),
            spread=float(self.wanted.std()),
        )

    def close(self) -> None:
        if self.engine is not None:
            self.engine.close()

    def _opened(self) -> InductorEngine:
        max_batch = max(self.case.batches)
        backend = "inductor" if self.device != "cpu" else "eager"
        cache = self.folder / "cache"
        return InductorEngine(
            self.folder, self.manifest, device=self.device, cache_dir=cache, max_batch=max_batch, backend=backend
        )

    def _feed(self, batch: int) -> Feed:
        """Repeat the engines' probes."""
        return {
            name: np.ascontiguousarray(np.concatenate([array] * (batch // 2 + 1))[:batch])
            for name, array in self.two.items()
        }

    def _tensors(self, feed: Feed) -> Tensors:
        moved = [torch.from_numpy(array).to(self.device) for array in feed.values()]
        return tuple(t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t for t in moved)

    def _eager_ms(self, inputs: Tensors) -> tuple[float, float | None]:
        eager_ms = self._median_ms(lambda: self.eager(*inputs))
        if self.device == "cpu":
            return eager_ms, None
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):  # libraries allocate workspaces here: allocations cannot be captured
            for _ in range(3):
                self.eager(*inputs)
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.eager(*inputs)
        graph_ms = self._median_ms(graph.replay)
        graph.reset()
        return eager_ms, graph_ms

    def _compiled_ms(self, engine: InductorEngine, batch: int) -> float:
        size = self.case.interface.size
        assert isinstance(size, FixedSize)
        shape = BatchShape(batch, size.height, size.width)
        # replays the CUDA graph alone, without copies from and to the host
        compiled = engine._shapes[shape]  # noqa: SLF001 -- engines do not expose it
        if compiled.graph is not None:
            return self._median_ms(compiled.graph.replay)
        return self._median_ms(lambda: compiled.module(*compiled.inputs.values()))

    def _median_ms(self, run: Callable[[], object]) -> float:
        for _ in range(5):
            run()
        timed = _cpu_ms if self.device == "cpu" else _gpu_ms
        return round(statistics.median(timed(run) for _ in range(self.runs)), 4)


def _gpu_ms(run: Callable[[], object]) -> float:
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before.record()
    run()
    after.record()
    after.synchronize()
    return float(before.elapsed_time(after))


def _cpu_ms(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1e3


def _psnr_db(wanted: np.ndarray[Any, Any], found: np.ndarray[Any, Any]) -> float | None:
    """Compute the PSNR of the first image for a peak of 1.0; None if both are identical."""
    error = float(np.mean(np.square(wanted.astype(np.float64) - found)))
    return None if error == 0 else round(float(-10 * np.log10(error)), 1)


def _manifest(case: Case) -> Manifest:
    interface = case.interface
    facts: Mapping[str, Any] = {"licence": "none", "training_data": "none: random weights", "generator": case.family}
    return Manifest(
        name="benchmark",
        version=1,
        task=interface.task,
        inputs=interface.inputs,
        output=interface.output,
        size=interface.size,
        max_batch=max(2, *case.batches),
        precision="fp16",
        opset=17,
        onnx_sha256="0" * 64,
        checkpoint_sha256="0" * 64,
        parity=Parity(bar_db=0, cases=()),
        **facts,
    )


if __name__ == "__main__":
    main()
