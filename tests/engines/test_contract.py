"""The contract of engines, tested for each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engines.base import BatchShape, Engine, Feed
from engines.cpu.openvino_cpu import OpenVinoEngine
from engines.cuda.api import Cuda
from engines.cuda.onnxrt_cuda import OnnxRuntimeCudaEngine
from engines.engine_choice import EngineOptions, open_engine
from engines.errors import EngineDead, EngineFailed, EngineUnavailable
from engines.fake import FakeEngine
from engines.manifest import Manifest, read_manifest
from engines.onnxrt import OnnxRuntimeEngine
from engines.trt.build import BuildOptions
from engines.trt.engine import TrtEngine
from tests.engines.conftest import conv_graph
from tests.fakes.cuda import FakeRuntime
from tests.fakes.tensor_rt import FakeTensorRt


def open_trt(directory: Path, manifest: Manifest, cache: Path) -> Engine:
    device = FakeRuntime()
    library = FakeTensorRt(device).library()
    return TrtEngine(
        directory, manifest, library=library, cuda=Cuda(device), cache_dir=cache, options=BuildOptions(max_batch=8)
    )


def open_bound_onnxrt(directory: Path, manifest: Manifest, cache: Path) -> Engine:
    return OnnxRuntimeCudaEngine(
        directory, manifest, cuda=Cuda(FakeRuntime()), cache_dir=cache, provider="CPUExecutionProvider"
    )


def open_here(name: str) -> Callable[[Path, Manifest, Path], Engine]:
    """Return an opener for an engine of this host's GPU, which skips the test with the reason if there is none."""

    def open_on_gpu(directory: Path, manifest: Manifest, cache: Path) -> Engine:
        try:
            return open_engine(directory, manifest, EngineOptions(name, cache_dir=cache, max_batch=8))
        except EngineUnavailable as error:
            pytest.skip(f"{name}: {error}")

    return open_on_gpu


OPENERS: dict[str, Callable[[Path, Manifest, Path], Engine]] = {
    "fake": lambda _directory, manifest, _cache: FakeEngine(manifest),
    "onnxrt": lambda directory, manifest, _cache: OnnxRuntimeEngine(directory, manifest, threads=1),
    "openvino": lambda directory, manifest, cache: OpenVinoEngine(directory, manifest, threads=1, cache_dir=cache),
    "trt on a fake device": open_trt,
    "onnxrt bound on the CPU": open_bound_onnxrt,
    "trt": open_here("trt"),
    "onnxrt-cuda": open_here("onnxrt-cuda"),
}
ON_A_GPU = ("trt", "onnxrt-cuda")
"""Engines tested on a GPU; inductor needs a program.pt2, so tests/gpu tests it."""


@pytest.fixture(params=["inpaint", "translate"])
def task(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=["fp32", "fp16"])
def precision(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="session")
def gpu_cache(tmp_path_factory) -> Path:
    """Return an engine cache that all tests share: plans take seconds to build."""
    return tmp_path_factory.mktemp("gpu-cache")


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.gpu] * (name in ON_A_GPU)) for name in OPENERS])
def engine(request: pytest.FixtureRequest, publish, tmp_path, gpu_cache, task, precision) -> Iterator[Engine]:
    directory = publish(onnx_model=conv_graph(task, half=precision == "fp16"), task=task, precision=precision)
    cache = gpu_cache if request.param in ON_A_GPU else tmp_path / "cache"
    engine = OPENERS[request.param](directory, read_manifest(directory), cache)
    yield engine
    engine.close()


def feed_of(manifest: Manifest, shape: BatchShape, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    feed = {"image": rng.random((shape.batch, 3, shape.height, shape.width), np.float32)}
    if manifest.input("mask"):
        feed["mask"] = (rng.random((shape.batch, 1, shape.height, shape.width)) < 0.3).astype(np.float32)
    return feed


@pytest.mark.parametrize("batch", [1, 3, 8])
@pytest.mark.parametrize("size", [(16, 16), (32, 16)], ids=str)
def test_output_is_finite_float32_of_the_batch_and_size(engine, batch, size):
    output = engine.infer(feed_of(engine.manifest, BatchShape(batch, *size)))["output"]
    assert output.shape == (batch, 3, *size)
    assert output.dtype == np.float32
    assert np.isfinite(output).all()


def test_feed_stays_as_it_was(engine):
    feed = feed_of(engine.manifest, BatchShape(3, 16, 16))
    before = {name: array.copy() for name, array in feed.items()}
    engine.infer(feed)
    for name, array in before.items():
        np.testing.assert_array_equal(feed[name], array)


def test_caller_may_reuse_its_buffers_for_the_next_batch(engine):
    first, second = (feed_of(engine.manifest, BatchShape(2, 16, 16), seed) for seed in (1, 2))
    wanted = engine.infer(second)["output"].copy()
    buffers = {name: array.copy() for name, array in first.items()}
    engine.infer(buffers)
    for name, array in second.items():
        buffers[name][...] = array
    np.testing.assert_allclose(engine.infer(buffers)["output"], wanted, atol=1e-6)


def test_same_feed_gives_the_same_output_whatever_ran_between(engine):
    feed = feed_of(engine.manifest, BatchShape(2, 32, 32))
    first = engine.infer(feed)["output"].copy()
    engine.infer(feed_of(engine.manifest, BatchShape(8, 16, 16), seed=9))
    engine.infer(feed_of(engine.manifest, BatchShape(1, 16, 32), seed=9))
    np.testing.assert_allclose(engine.infer(feed)["output"], first, atol=1e-6)


def test_sample_alone_equals_the_sample_in_a_batch(engine):
    feed = feed_of(engine.manifest, BatchShape(5, 32, 16))
    together = engine.infer(feed)["output"].copy()
    for index in range(5):
        alone: Feed = {name: np.ascontiguousarray(array[index : index + 1]) for name, array in feed.items()}
        np.testing.assert_allclose(engine.infer(alone)["output"][0], together[index], atol=1e-4)


def test_output_depends_on_every_input(engine):
    feed = feed_of(engine.manifest, BatchShape(1, 16, 16))
    before = engine.infer(feed)["output"].copy()
    for name in feed:
        changed = {**feed, name: 1 - feed[name]}
        assert np.abs(engine.infer(changed)["output"] - before).max() > 0.01


def test_warm_up_runs_every_shape(engine):
    engine.warm_up([BatchShape(1, 16, 16), BatchShape(8, 32, 32)])
    assert engine.infer(feed_of(engine.manifest, BatchShape(1, 16, 16)))["output"].shape == (1, 3, 16, 16)


BAD_FEEDS = {
    "missing input": lambda feed: {},
    "unknown input": lambda feed: {**feed, "noise": feed["image"]},
    "wrong dtype": lambda feed: {**feed, "image": feed["image"].astype(np.float64)},
    "wrong channels": lambda feed: {**feed, "image": np.ascontiguousarray(feed["image"][:, :2])},
    "wrong rank": lambda feed: {**feed, "image": feed["image"][0]},
    "size not a multiple": lambda feed: {name: np.ascontiguousarray(a[..., :12]) for name, a in feed.items()},
    "not contiguous": lambda feed: {**feed, "image": feed["image"][:, :, ::-1]},
    "batch too large": lambda feed: {name: np.repeat(a, 5, axis=0) for name, a in feed.items()},
    "empty batch": lambda feed: {name: a[:0] for name, a in feed.items()},
}


@pytest.mark.parametrize("spoil", BAD_FEEDS.values(), ids=BAD_FEEDS)
def test_bad_feed_fails_and_the_next_batch_still_runs(engine, spoil):
    feed = feed_of(engine.manifest, BatchShape(2, 16, 16))
    with pytest.raises(EngineFailed, match="tiny/1"):
        engine.infer(spoil(feed))
    assert engine.infer(feed)["output"].shape == (2, 3, 16, 16)


def test_closed_engine_is_dead_and_closing_twice_is_allowed(engine):
    engine.close()
    engine.close()
    with pytest.raises(EngineDead, match="closed"):
        engine.infer(feed_of(engine.manifest, BatchShape(1, 16, 16)))


def test_engine_names_itself_its_model_and_its_device(engine):
    assert repr(engine) == f"<{type(engine).__name__} tiny/1 {engine.precision} on {engine.device}>"
    assert engine.device in ("cpu", "cuda:0")
