"""Histograms that are updated with every request."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from prometheus_client import CollectorRegistry

from service.telemetry.histograms import LabelledHistogram
from service.telemetry.metrics import LATENCY_BUCKETS_S
from tests.serving.served_process import ROOT

SEEN = [
    (("decode", "a"), 0.0),
    (("decode", "a"), 0.001),
    (("decode", "a"), 0.0010000001),
    (("encode", ""), 0.0042),
    (("decode", "b"), 30.0),
    (("decode", "a"), 31.0),
]


def histogram_of(registry: CollectorRegistry) -> LabelledHistogram:
    return LabelledHistogram("stage_seconds", "Time", ("stage", "model"), LATENCY_BUCKETS_S, registry)


def test_it_counts_by_label_and_bucket() -> None:
    registry = CollectorRegistry()
    histogram = histogram_of(registry)
    for labels, value in SEEN:
        histogram.observe(labels, value)
    found = {"stage": "decode", "model": "a"}
    assert registry.get_sample_value("stage_seconds_count", found) == 4
    assert registry.get_sample_value("stage_seconds_bucket", {**found, "le": "0.001"}) == 2
    assert registry.get_sample_value("stage_seconds_sum", {"stage": "encode", "model": ""}) == 0.0042


def test_threads_lose_no_observation() -> None:
    registry = CollectorRegistry()
    histogram = histogram_of(registry)

    def observe(thread: int) -> None:
        for _ in range(5000):
            histogram.observe(("decode", str(thread % 2)), 1.0)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(observe, range(4)))
    for model in "01":
        assert registry.get_sample_value("stage_seconds_sum", {"stage": "decode", "model": model}) == 10_000


def test_what_a_process_counted_outlives_it_where_processes_share(tmp_path: Path) -> None:
    program = """
import os, signal
from service.telemetry.metrics import Metrics
metrics = Metrics()
metrics.request_done("/v1/inpaint", "photos/1", 200, 0.02)
metrics.stages_done({"decode": 0.001, "infer": 0.01})
metrics.batch_done("photos/1", "cpu", 4, 0.01)
os.kill(os.getpid(), signal.SIGKILL)
"""
    environ = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environ, cwd=ROOT, timeout=60, check=False)
    read = "from service.telemetry.metrics import Metrics; print(Metrics().exposition().decode())"
    done = subprocess.run(
        [sys.executable, "-c", read], env=environ, cwd=ROOT, timeout=60, check=True, capture_output=True, text=True
    )
    for series in (
        'retouch_request_duration_seconds_count{code="200",endpoint="/v1/inpaint",model="photos/1"} 1.0',
        'retouch_stage_duration_seconds_bucket{le="0.01",stage="infer"} 1.0',
        'retouch_batch_size_sum{device="cpu",model="photos/1"} 4.0',
        'retouch_batch_duration_seconds_count{device="cpu",model="photos/1"} 1.0',
    ):
        assert series in done.stdout
