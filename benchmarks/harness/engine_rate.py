"""Measures an engine alone."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from engines.base import BatchShape, Engine, blank_feed
from engines.cuda.api import Cuda, Stream

RUNS = 5


def engine_rate(engine: Engine, shape: BatchShape, seconds: float) -> float:
    """Return an engine's pictures per second with batches of that shape, of noise with a mask."""
    feed = blank_feed(engine.manifest, shape)
    feed = {**feed, "image": np.random.default_rng(0).random(feed["image"].shape, np.float32)}
    engine.infer(feed)
    started, runs = time.perf_counter(), 0
    while time.perf_counter() < started + seconds:
        engine.infer(feed)
        runs += 1
    return shape.batch * runs / (time.perf_counter() - started)


def median_ms(cuda: Cuda, stream: Stream, launch: Callable[[], object], run_s: float) -> float:
    """Return the device's milliseconds for one launch: the median of `RUNS` runs of about `run_s` seconds each."""
    begun, ended = cuda.event(), cuda.event()

    def several(times: int) -> float:
        begun.record(stream)
        for _ in range(times):
            launch()
        ended.record(stream)
        ended.synchronise()
        return ended.seconds_since(begun) / times

    several(3)
    times = min(2000, max(5, int(run_s / several(5))))
    return sorted(several(times) for _ in range(RUNS))[RUNS // 2] * 1e3
