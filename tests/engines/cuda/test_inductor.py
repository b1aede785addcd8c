"""The inductor engine keeps the engine contract; tested on the CPU with torch's eager interpreter as backend."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engines.base import BatchShape, blank_feed
from engines.cuda.inductor import PROGRAM_FILE, InductorEngine
from engines.errors import (
    DeviceLost,
    EngineDead,
    EngineFailed,
    EngineOutOfMemory,
    EngineUnavailable,
    ParityTooLow,
)
from engines.manifest import Manifest, read_manifest
from engines.onnxrt import OnnxRuntimeEngine
from service.devices.gpu import StreamEngine
from tests.engines.conftest import SEVERAL_SAMPLES, conv_graph, conv_weight, several_samples_graph

torch = pytest.importorskip("torch", reason="torch is not installed; pip install -e '.[export]'")
TorchDispatchMode: Any = pytest.importorskip("torch.utils._python_dispatch").TorchDispatchMode


class Net(torch.nn.Module):
    """The computation of `conv_graph` in torch."""

    def __init__(self, gain: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("weight", torch.from_numpy(conv_weight("inpaint", gain)))

    def forward(self, image: Any, mask: Any) -> Any:
        return torch.sigmoid(torch.nn.functional.conv2d(torch.cat([image, mask], 1), self.weight, padding=1))


def write_program(directory: Path, gain: float = 1.0) -> None:
    batch, height, width = torch.export.Dim("b", max=64), torch.export.Dim.AUTO, torch.export.Dim.AUTO
    pixels = {0: batch, 2: height, 3: width}
    inputs = (torch.zeros(2, 3, 16, 24), torch.zeros(2, 1, 16, 24))
    program = torch.export.export(Net(gain).eval(), inputs, dynamic_shapes=(pixels, pixels))
    torch.export.save(program, directory / PROGRAM_FILE)


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> bytes:
    directory = tmp_path_factory.mktemp("program")
    write_program(directory)
    return (directory / PROGRAM_FILE).read_bytes()


@pytest.fixture
def directory(publish, program) -> Path:
    directory = publish(onnx_model=conv_graph())
    (directory / PROGRAM_FILE).write_bytes(program)
    return directory


def open_it(directory: Path, cache: Path, **options: Any) -> InductorEngine:
    given = {"device": "cpu", "backend": "eager", "max_batch": 6, **options}
    return InductorEngine(directory, read_manifest(directory), cache_dir=cache, **given)


def feed_of(manifest: Manifest, batch: int, seed: int = 0, samples: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    feed = blank_feed(manifest, BatchShape(batch, 16, 16, samples))
    return {name: rng.random(array.shape, np.float32) for name, array in feed.items()}


def test_outputs_are_those_of_the_graph_at_every_batch(directory, tmp_path):
    engine = open_it(directory, tmp_path)
    reference = OnnxRuntimeEngine(directory, engine.manifest, threads=1)
    for batch in (1, 3, 5, 6, 8):
        feed = feed_of(engine.manifest, batch, seed=batch)
        output = engine.infer(feed)["output"]
        assert output.shape == (batch, 3, 16, 16)
        np.testing.assert_allclose(output, reference.infer(feed)["output"], atol=1e-5)
    assert engine.note.startswith("fp32 against onnxrt on the CPU:")


class SeveralSamples(Net):
    """The computation of `several_samples_graph` in torch."""

    def forward(self, image: Any, mask: Any, latent: Any) -> Any:  # type: ignore[override] # another model
        rows = torch.nn.functional.conv2d(torch.cat([image, mask], 1), self.weight, padding=1)
        return torch.sigmoid(rows[:, None] + latent.mean(2)[:, :, None, None, None])


def test_several_samples_of_each_row_are_those_of_the_graph(publish, tmp_path):
    directory = publish(onnx_model=several_samples_graph(), max_batch=12, **SEVERAL_SAMPLES)
    auto = torch.export.Dim.AUTO
    batch = torch.export.Dim("b", max=64)
    pixels = {0: batch, 2: auto, 3: auto}
    inputs = (torch.zeros(2, 3, 16, 24), torch.zeros(2, 1, 16, 24), torch.zeros(2, 3, 8))
    shapes = (pixels, pixels, {0: batch, 1: auto})
    torch.export.save(
        torch.export.export(SeveralSamples().eval(), inputs, dynamic_shapes=shapes), directory / PROGRAM_FILE
    )
    engine = open_it(directory, tmp_path, max_batch=12)
    reference = OnnxRuntimeEngine(directory, engine.manifest, threads=1)
    full = blank_feed(engine.manifest, BatchShape(3, 32, 32, 4))  # padded to 4 rows it would not fit
    assert engine.infer(full)["output"].shape == (3, 4, 3, 32, 32)
    for batch_size, samples in ((1, 1), (1, 4), (3, 2), (1, 8)):
        feed = feed_of(engine.manifest, batch_size, samples=samples)
        output = engine.infer(feed)["output"]
        assert output.shape == (batch_size, samples, 3, 16, 16)
        np.testing.assert_allclose(output, reference.infer(feed)["output"], atol=1e-5)


def batches_of(engine: InductorEngine, side: int) -> list[int]:
    """Return the batch sizes that were compiled for a tile size."""
    return sorted(shape.batch for shape in engine._shapes if (shape.height, shape.width) == (side, side))


def test_batches_are_padded_to_few_sizes_so_that_few_are_compiled(directory, tmp_path):
    engine = open_it(directory, tmp_path)
    for batch in (1, 2, 3, 4, 5, 6):
        engine.infer(feed_of(engine.manifest, batch))
    assert batches_of(engine, 16) == [1, 2, 4, 6]
    assert batches_of(engine, 32) == [1]  # compiled for the parity gate


def test_outputs_of_one_batch_do_not_leak_into_the_next(directory, tmp_path):
    engine = open_it(directory, tmp_path)
    wanted = engine.infer(feed_of(engine.manifest, 3, seed=1))["output"].copy()
    engine.infer(feed_of(engine.manifest, 4, seed=2))
    np.testing.assert_array_equal(engine.infer(feed_of(engine.manifest, 3, seed=1))["output"], wanted)


def test_model_without_a_program_is_told_how_to_get_one(publish, tmp_path):
    with pytest.raises(EngineUnavailable, match="retouch export --program writes it"):
        open_it(publish(onnx_model=conv_graph()), tmp_path)


def test_damaged_program_is_unavailable(directory, tmp_path):
    (directory / PROGRAM_FILE).write_bytes(b"PK\3\4 cut off")
    with pytest.raises(EngineUnavailable, match=r"cannot load the program of tiny/1.*write it anew"):
        open_it(directory, tmp_path)


def test_program_of_other_weights_is_refused_by_parity(directory, tmp_path):
    write_program(directory, gain=3)
    with pytest.raises(ParityTooLow, match="tiny/1 on inductor"):
        open_it(directory, tmp_path)


def test_missing_torch_is_named(directory, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(EngineUnavailable, match="torch is not installed"):
        open_it(directory, tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_host_without_a_gpu_is_unavailable(directory, tmp_path):
    with pytest.raises(EngineUnavailable, match="torch sees no NVIDIA GPU"):
        open_it(directory, tmp_path, device="cuda:0")


@pytest.mark.parametrize(
    ("error", "translated"),
    [
        (RuntimeError("sizes do not match"), EngineFailed),
        (torch.cuda.OutOfMemoryError("CUDA out of memory"), EngineOutOfMemory),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), EngineDead),
    ],
    ids=["batch", "memory", "context"],
)
def test_errors_say_what_can_be_done(directory, tmp_path, monkeypatch, error, translated):
    engine = open_it(directory, tmp_path)

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(engine, "_run", fail)
    with pytest.raises(translated, match="tiny/1 on inductor"):
        engine.infer(feed_of(engine.manifest, 1))


def test_closed_engine_is_dead(directory, tmp_path):
    engine = open_it(directory, tmp_path)
    engine.close()
    engine.close()
    with pytest.raises(EngineDead, match="closed"):
        engine.infer(feed_of(engine.manifest, 1))


def test_what_was_compiled_is_kept_for_the_next_start(directory, tmp_path, monkeypatch):
    loaded: list[bytes] = []
    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda: (b"compiled", None))
    monkeypatch.setattr(torch.compiler, "load_cache_artifacts", loaded.append)
    open_it(directory, tmp_path).warm_up([BatchShape(1, 16, 16)])
    assert loaded == []
    open_it(directory, tmp_path)
    assert loaded == [b"compiled"]
    stat = (directory / PROGRAM_FILE).stat()
    os.utime(directory / PROGRAM_FILE, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    open_it(directory, tmp_path)
    assert loaded == [b"compiled"]


def test_nothing_compiled_keeps_nothing(directory, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.compiler, "save_cache_artifacts", lambda: None)
    open_it(directory, tmp_path).warm_up([BatchShape(1, 16, 16)])
    assert not (tmp_path / "inductor").exists()


class FakeGpuTorch:
    """The torch module with a GPU that is really the CPU."""

    def __init__(self) -> None:
        self.calls = 0
        self.replays = 0
        self.streams: list[Any] = []
        self.cuda = SimpleNamespace(
            is_available=lambda: True,
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
    """A CUDA graph that records every operation and runs them again on the same memory."""

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


def memory(engine: InductorEngine, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """View the start of the engine's memory of a tensor, as a pipeline that has only the address does."""
    count = int(np.prod(shape))
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(engine.addresses[name])).reshape(shape)


def test_a_pipeline_fills_the_memory_and_computes_on_its_own_stream(gpu, directory, tmp_path):
    engine = open_it(directory, tmp_path, device="cuda:0")
    assert isinstance(engine, StreamEngine)
    assert engine.most == BatchShape(6, 32, 32)
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
    assert batches_of(engine, 16) == [1, 2, 4, 6]  # 1 and 2 are the parity gate's


def test_parity_under_one_driver_says_nothing_of_another(gpu, directory, tmp_path, monkeypatch):
    for version, verdicts in ((12080, 1), (12080, 1), (13000, 2)):
        monkeypatch.setattr("engines.cuda.inductor.driver_version", lambda version=version: version)
        open_it(directory, tmp_path, device="cuda:0").close()
        assert len(list((tmp_path / "precision").iterdir())) == verdicts


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
