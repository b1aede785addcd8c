"""ONNX Runtime on a GPU: memory binding, tested with the CPU provider, and errors that name a missing part."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import pytest

from engines.base import BatchShape, blank_feed
from engines.cuda.api import Cuda, DeviceBuffer
from engines.cuda.onnxrt_cuda import OnnxRuntimeCudaEngine, import_onnxruntime, start_onnxruntime
from engines.errors import DeviceLost, EngineDead, EngineFailed, EngineOutOfMemory, EngineUnavailable, ParityTooLow
from engines.manifest import read_manifest
from engines.onnxrt import OnnxRuntimeEngine
from engines.parity.comparison import Verdict
from service.devices.gpu import StreamEngine
from tests.engines.conftest import SEVERAL_SAMPLES, conv_graph, several_samples_graph
from tests.fakes.captured_logs import capture_logs
from tests.fakes.cuda import FakeRuntime, Status


def open_bound(directory: Path, cache: Path, **options: Any) -> OnnxRuntimeCudaEngine:
    given = {"provider": "CPUExecutionProvider", "cuda": Cuda(FakeRuntime()), **options}
    return OnnxRuntimeCudaEngine(directory, read_manifest(directory), cache_dir=cache, **given)


def test_host_without_the_provider_is_told_what_to_install(publish, tmp_path, monkeypatch):
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(EngineUnavailable, match="retouch install-gpu"):
        open_bound(publish(onnx_model=conv_graph()), tmp_path, provider="CUDAExecutionProvider")


def test_cuda_libraries_of_pips_packages_are_loaded_first_without_a_word(monkeypatch, capsys):
    module = SimpleNamespace(
        get_available_providers=lambda: ["CUDAExecutionProvider"],
        preload_dlls=lambda: sys.stdout.write("Failed to load libcudnn"),
    )
    monkeypatch.setitem(sys.modules, "onnxruntime", module)
    assert import_onnxruntime() is module
    assert capsys.readouterr().out == ""


def test_missing_library_is_named(publish, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(EngineUnavailable, match="retouch install-gpu"):
        open_bound(publish(onnx_model=conv_graph()), tmp_path)


def test_provider_that_does_not_start_is_not_served_by_the_processor_in_silence(publish, tmp_path, monkeypatch):
    device = FakeRuntime()
    said: list[int | str] = []

    class FallsBack(onnxruntime.InferenceSession):
        def __init__(self, path: Path, options: Any, providers: list[Any]) -> None:
            ((provider, provider_options),) = providers
            assert (provider, provider_options["enable_cuda_graph"]) == ("CUDAExecutionProvider", "1")
            assert int(provider_options["user_compute_stream"]) in device.queues
            super().__init__(path, options, providers=["CPUExecutionProvider"])
            said.append("opened")

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "InferenceSession", FallsBack)
    monkeypatch.setattr(onnxruntime, "set_default_logger_severity", said.append)
    with pytest.raises(EngineUnavailable, match="does not start here"):
        open_bound(publish(onnx_model=conv_graph()), tmp_path, provider="CUDAExecutionProvider", cuda=Cuda(device))
    assert device.alive == 0
    assert said == [3, "opened", 2], "without its warning at each session that CUDA's provider is no plugin"


def test_a_provider_that_was_built_in_is_seen_to_start_with_a_tiny_model(monkeypatch):
    assert start_onnxruntime("CPUExecutionProvider") is onnxruntime
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"), pytest.raises(EngineUnavailable, match="not start"):
        start_onnxruntime()


def test_unparsable_graph_is_unavailable_by_name(publish, tmp_path):
    with pytest.raises(EngineUnavailable, match="cannot load tiny/1"):
        open_bound(publish(onnx_model=b"no graph"), tmp_path)


def test_size_that_the_graph_does_not_take_fails_the_batch_only(publish, tmp_path):
    sizes = {"kind": "multiple", "multiple_of": 8, "sides": [16]}
    engine = open_bound(publish(onnx_model=conv_graph(size=(16, 16)), size=sizes), tmp_path)
    with pytest.raises(EngineFailed, match="tiny/1 on onnxrt cpu"):
        engine.infer(blank_feed(engine.manifest, BatchShape(1, 32, 32)))
    assert engine.infer(blank_feed(engine.manifest, BatchShape(1, 16, 16)))["output"].shape == (1, 3, 16, 16)


def test_memory_of_a_shape_is_bound_once(publish, tmp_path):
    engine = open_bound(publish(onnx_model=conv_graph()), tmp_path)
    engine.infer(blank_feed(engine.manifest, BatchShape(1, 16, 16)))
    binding = engine._bindings[BatchShape(1, 16, 16), True]
    engine.infer(blank_feed(engine.manifest, BatchShape(1, 16, 16)))
    assert engine._bindings[BatchShape(1, 16, 16), True] is binding


def test_warm_up_and_service_run_the_session_on_one_thread(publish, tmp_path, monkeypatch):
    """The CUDA provider keeps its graphs per thread."""
    ran_on: set[int] = set()

    class Recorded(onnxruntime.InferenceSession):
        def run_with_iobinding(self, *args: Any) -> None:
            ran_on.add(threading.get_ident())
            super().run_with_iobinding(*args)

    monkeypatch.setattr(onnxruntime, "InferenceSession", Recorded)
    engine = open_bound(publish(onnx_model=conv_graph()), tmp_path)
    feed = blank_feed(engine.manifest, BatchShape(1, 16, 16))
    with ThreadPoolExecutor(1) as loader:
        loader.submit(engine.infer, feed).result()
    engine.infer(feed)
    assert len(ran_on) == 1
    engine.close()
    assert ran_on.isdisjoint(thread.ident for thread in threading.enumerate())


def test_parity_is_in_the_note_and_remembered_by_what_it_depends_on(publish, tmp_path):
    directory = publish(onnx_model=conv_graph())
    engine = open_bound(directory, tmp_path)
    assert engine.note == "fp32 against onnxrt on the CPU: identical, the bar is 45 dB"
    assert len(list((tmp_path / "precision").iterdir())) == 1
    assert open_bound(directory, tmp_path).note == engine.note


@pytest.mark.parametrize("changed", [{"name": "NVIDIA L40"}, {"capability": (9, 0)}, {"driver": 12080}], ids=str)
def test_parity_on_one_gpu_says_nothing_of_another_or_of_another_driver(publish, tmp_path, changed):
    directory, cuda = publish(onnx_model=conv_graph()), Cuda(FakeRuntime())
    open_bound(directory, tmp_path, cuda=cuda)
    open_bound(directory, tmp_path, cuda=cuda)
    assert len(list((tmp_path / "precision").iterdir())) == 1
    cuda.device = cuda.device._replace(**changed)
    open_bound(directory, tmp_path, cuda=cuda)
    assert len(list((tmp_path / "precision").iterdir())) == 2


def test_engine_under_the_bar_is_refused(publish, tmp_path, monkeypatch):
    monkeypatch.setattr("engines.parity.gate.compare", lambda *_: Verdict(31.0, finite=True, inputs="full"))
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


def test_pipeline_may_fill_the_device_memory_itself(publish, tmp_path):
    device = FakeRuntime()
    cuda = Cuda(device)
    engine = open_bound(publish(onnx_model=conv_graph()), tmp_path, cuda=cuda)
    feed = {**blank_feed(engine.manifest, BatchShape(2, 16, 16))}
    feed["image"] = np.random.default_rng(0).random(feed["image"].shape, np.float32)
    wanted = engine.infer(feed)["output"].copy()
    assert isinstance(engine, StreamEngine)
    stream = cuda.stream()
    pinned = cuda.pinned_buffer(wanted.nbytes)
    pinned.array(wanted.shape, "float32")[...] = 0
    cuda.copy_in(DeviceBuffer(cuda, engine.addresses["output"], wanted.nbytes), pinned, wanted.nbytes, stream)
    engine.enqueue(BatchShape(2, 16, 16), stream)
    cuda.copy_out(pinned, DeviceBuffer(cuda, engine.addresses["output"], wanted.nbytes), wanted.nbytes, stream)
    stream.synchronise()
    np.testing.assert_array_equal(pinned.array(wanted.shape, "float32"), wanted)


def test_closed_engine_gives_everything_back(publish, tmp_path):
    device = FakeRuntime()
    engine = open_bound(publish(onnx_model=conv_graph()), tmp_path, cuda=Cuda(device))
    engine.close()
    assert device.alive == 0
    with pytest.raises(EngineDead, match="closed"):
        engine.enqueue(BatchShape(1, 16, 16), Cuda(device).stream())


class FailingSession:
    """A session whose runs fail with ONNX Runtime's messages."""

    def __init__(self, session: Any, message: str) -> None:
        self.io_binding, self._said = session.io_binding, message

    def run_with_iobinding(self, *_: Any) -> None:
        raise RuntimeError(self._said)


@pytest.mark.parametrize(
    ("message", "status", "raised"),
    [
        ("bfc_arena.cc: Failed to allocate memory for requested buffer of size 9", None, EngineOutOfMemory),
        ("CUDNN_STATUS_BAD_PARAM", None, EngineFailed),
        ("CUDA failure 700: an illegal memory access", Status.cudaErrorIllegalAddress, DeviceLost),
    ],
    ids=["memory", "batch", "context"],
)
def test_errors_say_what_can_be_done(publish, tmp_path, message, status, raised):
    device = FakeRuntime()
    engine = open_bound(publish(onnx_model=conv_graph()), tmp_path, cuda=Cuda(device))
    engine.infer(blank_feed(engine.manifest, BatchShape(1, 16, 16)))
    session, engine._session = engine._session, FailingSession(engine._session, message)
    stream = Cuda(device).stream()
    engine._on_gpu = True  # otherwise the engine waits for the stream before the run
    if status is not None:
        device.fail["cudaStreamSynchronize"] = status
    with pytest.raises(raised, match="context is lost" if status else message):
        engine.enqueue(BatchShape(1, 16, 16), stream)
    engine._session, engine._on_gpu = session, False
    assert engine.infer(blank_feed(engine.manifest, BatchShape(1, 16, 16)))["output"].shape == (1, 3, 16, 16)


def test_graphs_can_be_left_out(publish, tmp_path):
    engine = open_bound(publish(onnx_model=conv_graph()), tmp_path)
    feed = blank_feed(engine.manifest, BatchShape(1, 16, 16))
    wanted = engine.infer(feed)["output"].copy()
    engine.use_graphs(False)
    np.testing.assert_array_equal(engine.infer(feed)["output"], wanted)
    graphs = [binding.options.get_run_config_entry("gpu_graph_id") for binding in engine._bindings.values()]
    assert graphs[-1] == "-1"
    assert "-1" not in graphs[:-1]


def test_batch_beyond_the_memory_fails_alone(publish, tmp_path):
    engine = open_bound(publish(onnx_model=conv_graph()), tmp_path, max_batch=2)
    with pytest.raises(EngineFailed, match=r"tiny/1: output of .* the engine was opened for"):
        engine.infer(blank_feed(engine.manifest, BatchShape(3, 32, 32)))
    assert engine.infer(blank_feed(engine.manifest, BatchShape(2, 32, 32)))["output"].shape == (2, 3, 32, 32)


def test_lost_context_kills_the_engine_and_closing_it_still_works(publish, tmp_path):
    device = FakeRuntime()
    engine = open_bound(publish(onnx_model=conv_graph()), tmp_path, cuda=Cuda(device))
    device.fail["cudaEventRecord"] = Status.cudaErrorIllegalAddress
    with pytest.raises(DeviceLost, match="context is lost"):
        engine.infer(blank_feed(engine.manifest, BatchShape(1, 16, 16)))
    device.fail["cudaFree"] = Status.cudaErrorIllegalAddress
    with capture_logs() as logs:
        engine.close()
    assert [line["event"] for line in logs] == ["GPU memory not freed"]


class HangingSession:
    """A session whose runs hang until the test releases them."""

    def __init__(self, session: Any) -> None:
        self.io_binding = session.io_binding
        self.begun, self.may_end = threading.Event(), threading.Event()

    def run_with_iobinding(self, *_: Any) -> None:
        self.begun.set()
        self.may_end.wait(20)


def test_a_run_that_hangs_keeps_neither_close_nor_the_process_from_ending(publish, tmp_path):
    device = FakeRuntime()
    engine = open_bound(publish(onnx_model=conv_graph()), tmp_path, cuda=Cuda(device), join_s=0.05)
    session = engine._session = HangingSession(engine._session)
    feed = blank_feed(engine.manifest, BatchShape(1, 16, 16))
    worker = threading.Thread(target=engine.infer, args=(feed,), daemon=True)
    worker.start()
    assert session.begun.wait(5)
    try:
        with capture_logs() as logs:
            engine.close()
            engine.close()
        assert {line["event"] for line in logs} == {"GPU memory not freed"}
        assert device.alive, "the run uses this memory"
        runners = [thread for thread in threading.enumerate() if thread.name.startswith("onnxrt")]
        assert runners
        assert all(thread.daemon for thread in runners)
    finally:
        session.may_end.set()
        worker.join(5)
