"""ONNX Runtime on a GPU: bound memory is tested on the CPU's provider, and everything that can be missing by name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from engines.base import BatchShape, blank_feed
from engines.errors import EngineFailed, EngineUnavailable, ParityTooLow
from engines.manifest import read_manifest
from engines.onnxrt import OnnxRuntimeEngine
from engines.onnxrt_cuda import OnnxRuntimeCudaEngine
from engines.parity import Verdict

from .conftest import SEVERAL_SAMPLES, conv_graph, several_samples_graph


def open_bound(directory: Path, cache: Path, **options: Any) -> OnnxRuntimeCudaEngine:
    given = {"provider": "CPUExecutionProvider", **options}
    return OnnxRuntimeCudaEngine(directory, read_manifest(directory), cache_dir=cache, **given)


def test_host_without_the_provider_is_told_what_to_install(publish, tmp_path, monkeypatch):
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(EngineUnavailable, match="pip install onnxruntime-gpu"):
        open_bound(publish(onnx_model=conv_graph()), tmp_path, provider="CUDAExecutionProvider")


def test_missing_library_is_named(publish, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(EngineUnavailable, match="pip install onnxruntime-gpu"):
        open_bound(publish(onnx_model=conv_graph()), tmp_path)


def test_provider_that_does_not_start_is_not_served_by_the_processor_in_silence(publish, tmp_path, monkeypatch):
    class FallsBack(onnxruntime.InferenceSession):
        def __init__(self, path: Path, options: Any, providers: list[Any]) -> None:
            ((provider, provider_options),) = providers
            assert (provider, provider_options["enable_cuda_graph"]) == ("CUDAExecutionProvider", "1")
            super().__init__(path, options, providers=["CPUExecutionProvider"])

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", FallsBack)
    with pytest.raises(EngineUnavailable, match="does not start here"):
        open_bound(publish(onnx_model=conv_graph()), tmp_path, provider="CUDAExecutionProvider")


def test_unparsable_graph_is_unavailable_by_name(publish, tmp_path):
    with pytest.raises(EngineUnavailable, match="cannot load tiny/1"):
        open_bound(publish(onnx_model=b"no graph"), tmp_path)


def test_size_that_the_graph_does_not_take_fails_the_batch_only(publish, tmp_path):
    engine = open_bound(publish(onnx_model=conv_graph(size=(16, 16))), tmp_path)
    with pytest.raises(EngineFailed, match="tiny/1 on onnxrt cpu"):
        engine.infer(blank_feed(engine.manifest, BatchShape(1, 32, 32)))
    assert engine.infer(blank_feed(engine.manifest, BatchShape(1, 16, 16)))["output"].shape == (1, 3, 16, 16)


def test_memory_of_a_shape_is_bound_once(publish, tmp_path):
    engine = open_bound(publish(onnx_model=conv_graph()), tmp_path)
    engine.infer(blank_feed(engine.manifest, BatchShape(1, 16, 16)))
    bound = engine._bound[BatchShape(1, 16, 16)]
    engine.infer(blank_feed(engine.manifest, BatchShape(1, 16, 16)))
    assert engine._bound[BatchShape(1, 16, 16)] is bound


def test_parity_is_in_the_note_and_remembered_by_what_it_depends_on(publish, tmp_path):
    directory = publish(onnx_model=conv_graph())
    engine = open_bound(directory, tmp_path)
    assert engine.note == "fp32 against onnxrt on the CPU: identical, the bar is 45 dB"
    assert len(list((tmp_path / "precision").iterdir())) == 1
    assert open_bound(directory, tmp_path).note == engine.note


def test_engine_under_the_bar_is_refused(publish, tmp_path, monkeypatch):
    monkeypatch.setattr("engines.gate.compare", lambda *_: Verdict(31.0, finite=True, inputs="full"))
    with pytest.raises(ParityTooLow, match=r"tiny/1 on onnxrt: fp32 .* 31\.0 dB on full inputs, the bar is 45 dB"):
        open_bound(publish(onnx_model=conv_graph()), tmp_path)


def test_several_samples_of_each_row_are_bound_as_a_shape_of_their_own(publish, tmp_path):
    directory = publish(onnx_model=several_samples_graph(), **SEVERAL_SAMPLES)
    engine = open_bound(directory, tmp_path)
    reference = OnnxRuntimeEngine(directory, engine.manifest, threads=1)
    for batch, samples in ((1, 1), (1, 4), (2, 3)):
        feed = {**blank_feed(engine.manifest, BatchShape(batch, 16, 16, samples))}
        feed["latent"] = np.random.default_rng(samples).random(feed["latent"].shape, np.float32)
        np.testing.assert_array_equal(engine.infer(feed)["output"], reference.infer(feed)["output"])
