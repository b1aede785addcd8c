"""The step of benchmarks/gpu/pipeline.py that damages cached engines: they are rebuilt, or the next engine serves."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.gpu.bench import Bench, random_samples
from benchmarks.gpu.checks import differs
from engines.engine_choice import EngineOptions, choose_engine, open_engine
from engines.errors import ModelCorrupt
from engines.manifest import ONNX_FILE
from service.core.pictures import Size
from service.devices.cpu import CpuDevice

PROGRAM_FILE = "program.pt2"
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda _: b"",
    "corrupt": lambda content: content[:-64] + bytes(64),
    "garbage": lambda content: bytes(range(256)) * (len(content) // 256 + 1),
    "of another host": lambda content: content.replace(b'"gpu": "', b'"gpu": "another '),
}


def faults(bench: Bench) -> None:
    """Damage every file of the cache in every way, then the package itself; results must stay the same."""
    engine = bench.engine
    samples = random_samples(bench.manifest, np.random.default_rng(4), 2, Size(*min(bench.manifest.size.tile_sizes())))
    wanted = CpuDevice().compute(engine, samples)
    kept = sorted(
        path.relative_to(bench.arguments.cache) for path in bench.arguments.cache.rglob("*") if path.is_file()
    )
    for name, damage in DAMAGES.items():
        with tempfile.TemporaryDirectory() as folder:
            cache = Path(shutil.copytree(bench.arguments.cache, Path(folder) / "cache"))
            for path in kept:
                (cache / path).write_bytes(damage((cache / path).read_bytes()))
            started = time.perf_counter()
            options = EngineOptions(bench.arguments.engine, cache_dir=cache, max_batch=bench.arguments.max_batch)
            again = open_engine(bench.arguments.model, bench.manifest, options)
            off = differs(CpuDevice().compute(again, samples), wanted)
            again.close()
        bench.log_figures(
            "faults",
            cache=name,
            files=len(kept),
            engine=again.name,
            s=round(time.perf_counter() - started, 1),
            worst=off,
        )
        assert (again.name, off <= 1) == (engine.name, True)
    _packages(bench, wanted=(samples, wanted))


def _packages(bench: Bench, wanted: tuple[list, list]) -> None:
    """Check that a damaged program leads to the next engine, and a damaged graph to a refusal."""
    samples, tiles = wanted
    for name in (PROGRAM_FILE, ONNX_FILE):
        if not (bench.arguments.model / name).exists():
            continue
        with tempfile.TemporaryDirectory() as folder:
            model = Path(shutil.copytree(bench.arguments.model, Path(folder) / "1"))
            (model / name).write_bytes((model / name).read_bytes()[:-1000])
            options = EngineOptions("auto", cache_dir=Path(folder) / "cache", max_batch=bench.arguments.max_batch)
            try:
                opened = choose_engine(model, bench.manifest, options)
            except ModelCorrupt as error:
                bench.log_figures("faults", damaged=name, refused=str(error)[:120])
                continue
            off = differs(CpuDevice().compute(opened.engine, samples), tiles)
            reasons = {engine: reason[:120] for engine, reason in opened.passed_over.items()}
            opened.engine.close()
        bench.log_figures("faults", damaged=name, engine=repr(opened.engine), passed_over=reasons, worst=off)
        assert off <= 2
