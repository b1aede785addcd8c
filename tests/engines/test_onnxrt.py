"""Failures of ONNX Runtime are raised as this project's errors."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from engines.base import BatchShape, blank_feed
from engines.errors import EngineFailed, EngineUnavailable
from engines.manifest import read_manifest
from engines.onnxrt import OnnxRuntimeEngine
from tests.engines.conftest import INT8, conv_graph, int8_graph


def test_unparsable_graph_is_unavailable_by_name(publish):
    directory = publish(onnx_model=b"not a graph")
    with pytest.raises(EngineUnavailable, match="onnxrt cannot load tiny/1"):
        OnnxRuntimeEngine(directory, read_manifest(directory))


def test_missing_library_is_named(publish, monkeypatch):
    directory = publish(onnx_model=conv_graph())
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(EngineUnavailable, match="pip install onnxruntime"):
        OnnxRuntimeEngine(directory, read_manifest(directory))


def test_size_that_the_graph_does_not_take_fails_the_batch_only(publish):
    directory = publish(onnx_model=conv_graph(size=(16, 16)))
    engine = OnnxRuntimeEngine(directory, read_manifest(directory), threads=1)
    with pytest.raises(EngineFailed, match="tiny/1 on onnxrt"):
        engine.infer(blank_feed(engine.manifest, BatchShape(1, 32, 32)))
    assert engine.infer(blank_feed(engine.manifest, BatchShape(1, 16, 16)))["output"].shape == (1, 3, 16, 16)


def test_an_int8_model_runs_and_says_so(publish):
    directory = publish(onnx_model=int8_graph(), **INT8)
    engine = OnnxRuntimeEngine(directory, read_manifest(directory), threads=1)
    assert engine.precision == "int8"
    assert np.isfinite(engine.infer(blank_feed(engine.manifest, BatchShape(1, 16, 16)))["output"]).all()
