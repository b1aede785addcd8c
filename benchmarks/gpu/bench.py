"""The parts that the steps of benchmarks/gpu/pipeline.py share: report, engine, and the speed of the engine alone."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness.engine_rate import RUNS, median_ms
from engines.base import BatchShape, Engine
from engines.cuda.api import open_cuda
from engines.engine_choice import EngineOptions, open_engine
from engines.manifest import Manifest
from retouch.bench.pipeline.variants import DEPTH, why_no_overlap
from service.core.batch_rows import Sample
from service.core.pictures import Size
from service.devices.contract import Device, SerialDevice
from service.devices.cpu import CpuDevice
from service.devices.gpu import GpuDevice, open_gpu_device
from service.devices.gpu_cvcuda import GpuPixels, load_cvcuda


@dataclass
class Bench:
    """The shared state of the steps; `facts` is the report."""

    arguments: argparse.Namespace
    manifest: Manifest
    facts: dict[str, Any] = field(default_factory=dict)
    _engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        """The engine, opened by the first step that needs it."""
        if self._engine is None:
            started = time.perf_counter()
            options = EngineOptions(
                self.arguments.engine,
                cache_dir=self.arguments.cache,
                max_batch=self.arguments.max_batch,
                trt_level=getattr(self.arguments, "trt_level", 3),
            )
            self._engine = open_engine(self.arguments.model, self.manifest, options)
            seconds = time.perf_counter() - started
            self.log_figures("open", engine=repr(self._engine), seconds=round(seconds, 1), note=self._engine.note)
        return self._engine

    def log_figures(self, step: str, **facts: Any) -> None:
        """Print one line, add the facts to the report and write the JSON again."""
        print(f"{time.strftime('%H:%M:%S')} {step}: {facts}", flush=True)
        self.facts.setdefault(step, []).append(facts)
        self.arguments.out.write_text(json.dumps(self.facts, indent=1, default=str) + "\n")

    def device(self, depth: int = DEPTH) -> Device:
        """Open the engine's overlapping device, or the synchronous one if it has none."""
        return open_gpu_device(self.engine, depth) or SerialDevice(CpuDevice())

    @property
    def largest_tile(self) -> tuple[int, int]:
        return max(self.manifest.size.tile_sizes(), key=lambda size: size[0] * size[1])


def random_samples(manifest: Manifest, rng: np.random.Generator, batch: int, tile: Size) -> list[Sample]:
    """Make random rows of a batch for the inputs of the model."""
    kinds: dict[str, Callable[[Any], np.ndarray]] = {
        "image": lambda _: rng.integers(0, 256, (*tile, manifest.image_channels), np.uint8),
        "mask": lambda _: (rng.random(tile) < 0.2).astype(np.uint8),
        "label": lambda spec: rng.integers(0, spec.classes or 2, tile, np.uint8),
        "instance": lambda _: rng.integers(0, 65536, tile, np.int32),
        "reference": lambda spec: rng.random((spec.shape[1], *tile), np.float32),
        "latent": lambda spec: rng.standard_normal([d for d in spec.shape if isinstance(d, int)], np.float32),
    }
    return [Sample(tile, {spec.name: kinds[spec.name](spec) for spec in manifest.inputs}) for _ in range(batch)]


def engine_alone_s(engine: Engine, shape: BatchShape, seconds: float = 1.0) -> float:
    """Return the engine's seconds per batch; for an engine without streams wall-clock time, including copies."""
    samples = random_samples(engine.manifest, np.random.default_rng(0), shape.batch, Size(*shape[1:3]))
    if why_no_overlap(engine):
        return wall_s(lambda: CpuDevice().compute(engine, samples), seconds)
    stream_engine: Any = engine
    cuda = open_cuda()
    stream = cuda.stream()
    device = GpuDevice(cuda, GpuPixels(load_cvcuda()), 1)
    device.collect(device.launch(engine, samples))  # fills its memory with real pixels: zeros compute faster
    return median_ms(cuda, stream, partial(stream_engine.enqueue, shape, stream), seconds / RUNS) / 1e3


def wall_s(work: Callable[[], Any], seconds: float) -> float:
    """Return the median time of repeated runs that together take about `seconds`."""
    work()
    taken: list[float] = []
    while sum(taken) < seconds:
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return sorted(taken)[len(taken) // 2]
