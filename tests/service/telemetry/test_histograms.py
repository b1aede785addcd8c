"""Histograms that are told of something with every request."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics, enable_created_metrics
from prometheus_client import generate_latest as exposition

from service.telemetry.histograms import LocalHistogram, SharedHistogram
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


def tally_of(registry: CollectorRegistry) -> LocalHistogram:
    return LocalHistogram("stage_seconds", "Time", ("stage", "model"), LATENCY_BUCKETS_S, registry)


def test_it_reads_as_the_client_librarys_own_histogram() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    tally = tally_of(ours)
    histogram = Histogram("stage_seconds", "Time", ["stage", "model"], buckets=LATENCY_BUCKETS_S, registry=theirs)
    disable_created_metrics()
    try:
        assert exposition(ours) == exposition(theirs)
        for labels, value in SEEN:
            tally.observe(labels, value)
            histogram.labels(*labels).observe(value)
        for _ in range(2):
            assert exposition(ours) == exposition(theirs)
    finally:
        enable_created_metrics()


def test_its_name_is_taken() -> None:
    registry = CollectorRegistry()
    tally_of(registry)
    with pytest.raises(ValueError, match="stage_seconds"):
        Histogram("stage_seconds", "Time", registry=registry)


def test_threads_lose_no_observation_and_nobody_needs_to_read() -> None:
    registry = CollectorRegistry()
    tally = tally_of(registry)

    def observe(thread: int) -> None:
        for _ in range(5000):
            tally.observe(("decode", str(thread % 2)), 1.0)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(observe, range(4)))
    for model in "01":
        labels = {"stage": "decode", "model": model}
        assert registry.get_sample_value("stage_seconds_sum", labels) == 10_000
        assert registry.get_sample_value("stage_seconds_bucket", {**labels, "le": "0.5"}) == 0
        assert registry.get_sample_value("stage_seconds_bucket", {**labels, "le": "1.0"}) == 10_000
    assert not tally._pending


def test_what_is_not_read_is_counted_before_it_fills_the_memory() -> None:
    tally = tally_of(CollectorRegistry())
    for _ in range(100_000):
        tally.observe(("decode", "a"), 1.0)
    assert len(tally._pending) < 5000


def test_a_shared_one_is_the_client_librarys() -> None:
    registry = CollectorRegistry()
    tally = SharedHistogram("stage_seconds", "Time", ("stage", "model"), LATENCY_BUCKETS_S, registry)
    for labels, value in SEEN:
        tally.observe(labels, value)
    assert registry.get_sample_value("stage_seconds_count", {"stage": "decode", "model": "a"}) == 4


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
