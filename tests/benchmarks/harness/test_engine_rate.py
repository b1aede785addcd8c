"""The rate of an engine alone counts the pictures of its batches."""

from __future__ import annotations

from benchmarks.harness.engine_rate import engine_rate
from engines.base import BatchShape
from engines.fake import FakeEngine
from tests.serving.fake_models import fake_manifest


def test_all_pictures_of_a_batch_count() -> None:
    engine = FakeEngine(fake_manifest("photos", "inpaint"), batch_s=0.2)
    assert 1 / 0.2 < engine_rate(engine, BatchShape(4, 64, 64), 0.3) <= 4 / 0.2
