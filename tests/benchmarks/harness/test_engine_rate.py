"""The rate of an engine alone is measured in pictures, not batches."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks.harness.engine_rate import engine_rate, median_ms
from engines.base import BatchShape
from engines.cuda.api import Cuda
from engines.fake import FakeEngine
from tests.fakes.clock import Clock
from tests.fakes.cuda import FakeRuntime
from tests.serving.fake_models import fake_manifest


def test_all_pictures_of_a_batch_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()

    def compute(seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr("benchmarks.harness.engine_rate.time", SimpleNamespace(perf_counter=clock))
    engine = FakeEngine(fake_manifest("photos", "inpaint"), batch_s=0.2, sleep=compute)
    assert engine_rate(engine, BatchShape(4, 64, 64), 0.3) == pytest.approx(4 / 0.2)


def test_the_time_of_a_launch_is_that_of_a_run_over_its_launches() -> None:
    cuda, launches = Cuda(FakeRuntime(), 0), list[None]()
    stream = cuda.stream()
    run_s = cuda.event().seconds_since(cuda.event())  # the time between any two of the fake's events
    found = median_ms(cuda, stream, lambda: launches.append(None), 8 * run_s / 5)
    assert (found, len(launches)) == (run_s / 8 * 1e3, 3 + 5 + 5 * 8)
