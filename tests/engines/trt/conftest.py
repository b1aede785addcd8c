"""TensorRT engines of each version on a fake device in host memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engines.conftest import conv_graph
from tests.engines.trt.bench import STYLES, Bench


@pytest.fixture
def directory(publish) -> Path:
    return publish(onnx_model=conv_graph())


@pytest.fixture(params=STYLES)
def bench(request: pytest.FixtureRequest, tmp_path) -> Bench:
    return Bench(tmp_path / "cache", request.param)


@pytest.fixture
def ten(tmp_path) -> Bench:
    return Bench(tmp_path / "cache")
