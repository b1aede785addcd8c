"""CUDA graphs of the compiled program, on a fake GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engines.base import BatchShape, blank_feed
from engines.errors import (
    DeviceLost,
    EngineDead,
    EngineFailed,
)
from engines.onnxrt import OnnxRuntimeEngine
from service.devices.gpu import StreamEngine
from tests.engines.cuda.programs import batches_of, feed_of, memory, open_it

torch = pytest.importorskip("torch", reason="torch is not installed; pip install -e '.[export]'")
TorchDispatchMode: Any = pytest.importorskip("torch.utils._python_dispatch").TorchDispatchMode


class FakeGpuTorch:
    """A stand-in for torch whose GPU is the CPU."""

    def __init__(self) -> None:
        self.calls = 0
        self.replays = 0
        self.emptied = 0
        self.is_initialized = True
        self.streams: list[Any] = []
        self.cuda = SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: self.is_initialized,
            empty_cache=self._empty_cache,
            get_device_name=lambda _device: "Fake GPU",
            OutOfMemoryError=torch.cuda.OutOfMemoryError,
            Stream=lambda _device: SimpleNamespace(wait_stream=lambda _: None, synchronize=lambda: None),
            current_stream=lambda _device: SimpleNamespace(wait_stream=lambda _: None),
            ExternalStream=lambda handle, device: (handle, device),
            stream=self._on,
            graph_pool_handle=lambda: "pool",
            CUDAGraph=lambda: FakeGraph(self),
            graph=self._record,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def _empty_cache(self) -> None:
        self.emptied += 1
        if self.emptied > 1:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def _on(self, stream: Any) -> Any:
        self.streams.append(stream)
        return nullcontext()

    def zeros(self, *arguments: Any, device: str, **options: Any) -> Any:
        assert device == "cuda:0"
        return torch.zeros(*arguments, **options)

    def compile(self, module: Any, **_options: Any) -> Any:
        def call(*inputs: Any) -> Any:
            self.calls += 1
            return module(*inputs)

        return call

    @contextmanager
    def _record(self, graph: FakeGraph, pool: Any, capture_error_mode: str) -> Iterator[None]:
        assert (pool, capture_error_mode) == ("pool", "thread_local")
        with graph:
            yield


class FakeGraph(TorchDispatchMode):
    """A fake CUDA graph: records operations, and replays them on the same memory."""

    def __init__(self, owner: FakeGpuTorch) -> None:
        super().__init__()
        self.owner = owner
        self.work: list[tuple[Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def run() -> Any:
            return func(*args, **(kwargs or {}))

        output = run()
        self.work.append((run, output))
        return output

    def replay(self) -> None:
        self.owner.replays += 1
        for run, output in self.work:
            output.copy_(run())


@pytest.fixture
def gpu(monkeypatch) -> FakeGpuTorch:
    gpu = FakeGpuTorch()
    modules = {"torch": gpu, "torch.export.passes": SimpleNamespace(move_to_device_pass=lambda program, _: program)}
    monkeypatch.setattr("engines.cuda.inductor.importlib", SimpleNamespace(import_module=modules.__getitem__))
    return gpu


def test_on_a_gpu_each_shape_is_recorded_once_and_then_replayed(gpu, directory, tmp_path):
    engine = open_it(directory, tmp_path, device="cuda:0")
    reference = OnnxRuntimeEngine(directory, engine.manifest, threads=1)
    gpu.calls = gpu.replays = 0
    for seed in range(3):
        feed = feed_of(engine.manifest, 4, seed)
        np.testing.assert_allclose(engine.infer(feed)["output"], reference.infer(feed)["output"], atol=1e-5)
    assert (gpu.calls, gpu.replays) == (4, 3)


def test_a_pipeline_fills_the_memory_and_computes_on_its_own_stream(gpu, directory, tmp_path):
    engine = open_it(directory, tmp_path, device="cuda:0")
    assert isinstance(engine, StreamEngine)
    assert engine.max_shape == BatchShape(6, 32, 32)
    reference = OnnxRuntimeEngine(directory, engine.manifest, threads=1)
    stream: Any = SimpleNamespace(handle=77)
    gpu.streams.clear()
    for batch in (3, 6, 3):
        feed = feed_of(engine.manifest, batch, seed=batch)
        for name, array in feed.items():
            memory(engine, name, array.shape)[...] = array
        engine.enqueue(BatchShape(batch, 16, 16), stream)
        output = memory(engine, "output", (batch, 3, 16, 16))
        np.testing.assert_allclose(output, reference.infer(feed)["output"], atol=1e-5)
    assert gpu.streams.count((77, "cuda:0")) == 3
    assert batches_of(engine, 16) == [1, 2, 4, 6]  # 1 and 2 from the parity gate


def test_parity_under_one_driver_says_nothing_of_another(gpu, directory, tmp_path, monkeypatch):
    for version, verdicts in ((12080, 1), (12080, 1), (13000, 2)):
        monkeypatch.setattr("engines.cuda.inductor.driver_version", lambda version=version: version)
        open_it(directory, tmp_path, device="cuda:0").close()
        assert len(list((tmp_path / "precision").iterdir())) == verdicts


def test_a_closed_engine_gives_its_memory_back_to_the_gpu_if_that_still_works(gpu, directory, tmp_path):
    engine = open_it(directory, tmp_path, device="cuda:0")
    assert gpu.emptied == 0
    engine.close()
    assert gpu.emptied == 1
    engine.close()
    assert gpu.emptied == 2
    gpu.is_initialized = False
    engine.close()
    assert gpu.emptied == 2


def test_graphs_can_be_left_out(gpu, directory, tmp_path):
    engine = open_it(directory, tmp_path, device="cuda:0")
    feed = feed_of(engine.manifest, 4)
    wanted = engine.infer(feed)["output"].copy()
    gpu.replays = 0
    engine.use_graphs(False)
    np.testing.assert_array_equal(engine.infer(feed)["output"], wanted)
    assert gpu.replays == 0


def test_closed_engine_takes_nothing_on_a_stream(gpu, directory, tmp_path):
    engine = open_it(directory, tmp_path, device="cuda:0")
    engine.close()
    with pytest.raises(EngineDead, match="closed"):
        engine.enqueue(BatchShape(1, 16, 16), SimpleNamespace(handle=77))  # type: ignore[arg-type]


def test_an_error_that_the_device_survives_fails_the_batch_alone(gpu, directory, tmp_path, monkeypatch):
    engine = open_it(directory, tmp_path, device="cuda:0")

    def fail(*_: Any) -> None:
        raise RuntimeError("CUDA error: invalid argument")

    monkeypatch.setattr(engine, "_launch", fail)
    gpu.cuda.synchronize = lambda: None
    with pytest.raises(EngineFailed, match="invalid argument"):
        engine.infer(feed_of(engine.manifest, 1))
    gpu.cuda.synchronize = fail
    with pytest.raises(DeviceLost, match="start the process again"):
        engine.infer(feed_of(engine.manifest, 1))


def test_batch_beyond_the_memory_fails_alone(directory, tmp_path):
    engine = open_it(directory, tmp_path, max_batch=2)
    with pytest.raises(EngineFailed, match=r"tiny/1: image of .* opened for batches of 2"):
        engine.infer(blank_feed(engine.manifest, BatchShape(3, 32, 32)))
    assert engine.infer(feed_of(engine.manifest, 2))["output"].shape == (2, 3, 16, 16)
