"""Measures an engine alone."""

from __future__ import annotations

import time

import numpy as np

from engines.base import BatchShape, Engine, blank_feed


def engine_rate(engine: Engine, shape: BatchShape, seconds: float) -> float:
    """Return the pictures per second of an engine with batches of that shape: noise with a mask."""
    feed = blank_feed(engine.manifest, shape)
    feed = {**feed, "image": np.random.default_rng(0).random(feed["image"].shape, np.float32)}
    engine.infer(feed)
    started, runs = time.perf_counter(), 0
    while time.perf_counter() < started + seconds:
        engine.infer(feed)
        runs += 1
    return shape.batch * runs / (time.perf_counter() - started)
