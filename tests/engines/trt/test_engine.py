"""The TensorRT engine on a fake device in host memory: plans, caches, parity, copies, graphs and their failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from engines.base import BatchShape, blank_feed
from engines.cuda.api import Cuda
from engines.errors import EngineDead, EngineFailed, EngineOutOfMemory, EngineUnavailable, ParityTooLow
from engines.manifest import read_manifest
from engines.onnxrt import OnnxRuntimeEngine
from engines.parity.probes import probe_feeds
from engines.trt.build import BuildOptions
from engines.trt.engine import TrtEngine
from tests.engines.conftest import SEVERAL_SAMPLES, conv_graph, several_samples_graph
from tests.fakes.cuda import FakeRuntime, Status
from tests.fakes.tensor_rt import FakeTensorRt

STYLES = ["8.6", "10", "rtx"]


class Bench:
    """A host: a fake device, a fake TensorRT and a cache folder."""

    def __init__(self, cache: Path, style: str = "10") -> None:
        self.device = FakeRuntime()
        self.trt = FakeTensorRt(self.device, style)
        self.cache = cache

    def open(self, directory: Path, **options: Any) -> TrtEngine:
        return TrtEngine(
            directory,
            read_manifest(directory),
            library=self.trt.library(),
            cuda=Cuda(self.device),
            cache_dir=self.cache,
            options=BuildOptions(**{"max_batch": 4, **options}),
        )

    def plans(self) -> list[Path]:
        return sorted((self.cache / "plans").iterdir())


@pytest.fixture
def directory(publish) -> Path:
    return publish(onnx_model=conv_graph())


@pytest.fixture(params=STYLES)
def bench(request: pytest.FixtureRequest, tmp_path) -> Bench:
    return Bench(tmp_path / "cache", request.param)


@pytest.fixture
def ten(tmp_path) -> Bench:
    return Bench(tmp_path / "cache")


def feed_of(engine: TrtEngine, batch: int = 1, seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    feed = blank_feed(engine.manifest, BatchShape(batch, 16, 16))
    return {name: rng.random(array.shape, np.float32) for name, array in feed.items()}


def test_outputs_are_those_of_the_graph_for_every_shape_and_again_from_its_cuda_graph(bench, directory):
    engine = bench.open(directory)
    reference = OnnxRuntimeEngine(directory, engine.manifest, threads=1)
    for batch in (1, 3, 4, 1):
        for seed in (1, 2, 3):
            feed = feed_of(engine, batch, seed)
            np.testing.assert_array_equal(engine.infer(feed)["output"], reference.infer(feed)["output"])


def test_each_shape_gets_one_context_and_one_graph(ten, directory):
    engine = ten.open(directory)
    ten.trt.contexts = 0
    ten.device.calls.clear()
    for _ in range(3):
        engine.infer(feed_of(engine, 3))
    assert ten.trt.contexts == 1
    assert ten.device.calls.count("cudaGraphInstantiate") == 1
    assert ten.device.calls.count("cudaGraphLaunch") == 2


def test_graphs_can_be_left_out_to_measure_what_they_are_worth(ten, directory):
    engine = ten.open(directory)
    engine.use_graphs(False)
    ten.device.calls.clear()
    first = [engine.infer(feed_of(engine, 3))["output"].copy() for _ in range(2)]
    assert "cudaGraphInstantiate" not in ten.device.calls
    engine.use_graphs(True)
    again = [engine.infer(feed_of(engine, 3))["output"].copy() for _ in range(2)]
    assert ten.device.calls.count("cudaGraphLaunch") == 1
    for output in (*first, *again):
        np.testing.assert_array_equal(output, first[0])


def test_stream_that_cannot_be_captured_runs_without_graphs(ten, directory):
    ten.trt.capturable = False
    engine = ten.open(directory)
    first = engine.infer(feed_of(engine))["output"].copy()
    np.testing.assert_array_equal(engine.infer(feed_of(engine))["output"], first)
    assert "cudaStreamBeginCapture" not in ten.device.calls


def test_capture_that_fails_is_not_tried_again(ten, directory):
    engine = ten.open(directory)
    ten.device.fail["cudaStreamEndCapture"] = Status.cudaErrorStreamCaptureUnsupported
    engine.infer(feed_of(engine, 3))
    ten.device.calls.clear()
    engine.infer(feed_of(engine, 3))
    assert "cudaStreamBeginCapture" not in ten.device.calls


def test_plan_is_built_once_and_then_loaded(bench, directory):
    bench.open(directory).close()
    engine = bench.open(directory)
    assert bench.trt.builds == 1
    assert engine.note.startswith("fp32 against onnxrt on the CPU: identical")
    assert engine.infer(feed_of(engine))["output"].shape == (1, 3, 16, 16)


@pytest.mark.parametrize(
    "options", [{"max_batch": 2}, {"version_compatible": True}, {"hardware_compatible": True}, {"level": 2}]
)
def test_other_options_need_another_plan(ten, directory, options):
    ten.open(directory)
    ten.open(directory, **options)
    assert ten.trt.builds == 2
    assert len(ten.plans()) == 2


def test_another_gpu_or_model_needs_another_plan(ten, directory, publish):
    ten.open(directory)
    ten.device.name = b"Other GPU"
    ten.open(directory)
    ten.open(publish(onnx_model=conv_graph(gain=2)))
    assert ten.trt.builds == 3


def test_damaged_plan_is_built_anew(ten, directory):
    ten.open(directory)
    ten.plans()[0].write_bytes(b"\0" * 100)
    ten.open(directory)
    assert ten.trt.builds == 2
    ten.open(directory)
    assert ten.trt.builds == 2


def test_plan_that_the_runtime_refuses_is_built_anew(ten, directory, monkeypatch):
    ten.open(directory)
    monkeypatch.setattr("engines.plan_cache.PlanCache.get", lambda *_: b"foreign")
    with capture_logs() as logs:
        engine = ten.open(directory)
    assert [line["event"] for line in logs] == ["plan refused", "plan is being built"]
    assert "built for another device" in logs[0]["reason"]
    assert engine.infer(feed_of(engine))["output"].shape == (1, 3, 16, 16)


def test_plan_that_is_refused_on_a_read_only_disk_is_built_anew_all_the_same(ten, directory, monkeypatch):
    ten.open(directory)
    monkeypatch.setattr("engines.plan_cache.PlanCache.get", lambda *_: b"foreign")

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    engine = ten.open(directory)
    assert ten.trt.builds == 2
    assert engine.infer(feed_of(engine))["output"].shape == (1, 3, 16, 16)


def test_timing_cache_of_the_first_build_serves_the_next(ten, directory):
    ten.open(directory)
    ten.open(directory, max_batch=2)
    assert ten.trt.timing_caches == [b"", b"timings"]


@pytest.mark.parametrize("content", [b"foreign", b"damaged"])
def test_timing_cache_that_does_not_fit_is_started_afresh(ten, directory, monkeypatch, content):
    def get(_cache: Any, facts: dict[str, Any]) -> bytes | None:
        return None if "model" in facts else content

    monkeypatch.setattr("engines.plan_cache.PlanCache.get", get)
    ten.open(directory)
    assert ten.trt.timing_caches == [content, b""]


def test_library_that_finds_no_gpu_is_unavailable_with_its_reason(bench, directory):
    bench.trt.finds_no_gpu = True
    with pytest.raises(EngineUnavailable, match="cannot build here: CUDA initialization failure"):
        bench.open(directory)
    bench.trt.finds_no_gpu = False
    bench.open(directory).close()
    bench.trt.finds_no_gpu = True
    with capture_logs() as logs, pytest.raises(EngineUnavailable):
        bench.open(directory)
    assert "does not start: CUDA initialization failure" in logs[0]["reason"]


def test_what_rtx_compiled_is_kept_for_the_next_start(directory, tmp_path):
    bench = Bench(tmp_path / "cache", "rtx")
    bench.open(directory).warm_up([BatchShape(1, 16, 16)])
    assert bench.trt.runtime_caches == []
    bench.open(directory)
    assert bench.trt.runtime_caches == [b"compiled"]


def test_warm_up_without_rtx_keeps_nothing(ten, directory):
    ten.open(directory).warm_up([BatchShape(1, 16, 16)])
    assert not (ten.cache / "runtime").exists()


def test_weakly_typed_network_is_told_every_float_type(directory, tmp_path):
    bench = Bench(tmp_path / "cache", "8.6")
    bench.open(directory, level=2)
    settings = bench.trt.settings
    assert "level 2" in settings
    assert {"FP16", "OBEY", "PROFILE_SHARING", f"tactics {1 << 3 | 1 << 4}"} <= set(settings)


def test_strongly_typed_network_needs_no_precision_flags(ten, directory):
    ten.open(directory)
    assert not {"FP16", "OBEY"} & set(ten.trt.settings)
    assert "native instance norm" in ten.trt.settings
    assert "profile ((1, 3, 16, 16), (1, 3, 16, 16), (1, 3, 16, 16))" in ten.trt.settings
    assert "profile ((2, 3, 16, 16), (4, 3, 16, 16), (4, 3, 16, 16))" in ten.trt.settings


def test_operator_that_8_6_cannot_parse_is_named(publish, tmp_path):
    with pytest.raises(EngineUnavailable, match="cannot parse tiny/1: operator Frobnicate"):
        Bench(tmp_path, "8.6").open(publish(onnx_model=b"unknown operator"))


def test_outputs_under_the_bar_refuse_the_engine_and_leave_no_memory_taken(ten, directory):
    ten.trt.noise = 0.1
    with pytest.raises(ParityTooLow, match=r"tiny/1 on trt: fp32 against .*20\.0 dB .*the bar is 45 dB"):
        ten.open(directory)
    assert ten.device.alive == 0


def test_outputs_that_are_not_finite_refuse_the_engine(ten, directory):
    ten.trt.noise = np.nan
    with pytest.raises(ParityTooLow, match="NaN or inf on ordinary inputs"):
        ten.open(directory)


def test_parity_is_measured_once_for_each_plan(ten, directory):
    ten.open(directory)
    ten.trt.noise = 0.1
    assert "identical" in ten.open(directory).note


def test_model_for_single_samples_is_compared_with_single_samples(ten, publish):
    engine = ten.open(publish(onnx_model=conv_graph(), max_batch=1))
    assert engine.infer(feed_of(engine))["output"].shape == (1, 3, 16, 16)


def test_refused_batch_fails_alone(ten, directory):
    engine = ten.open(directory)
    ten.trt.refuse_execution = True
    with pytest.raises(EngineFailed, match=r"TensorRT 10\.9\.0: the batch is refused.*the device said no"):
        engine.infer(feed_of(engine, 3))
    ten.trt.refuse_execution = False
    assert engine.infer(feed_of(engine, 3))["output"].shape == (3, 3, 16, 16)


@pytest.mark.parametrize(
    ("flag", "words"), [("refuse_contexts", "no execution context"), ("refuse_shapes", "the shape is refused")]
)
def test_shape_that_cannot_be_set_up_fails_alone_and_can_be_tried_again(bench, directory, flag, words):
    engine = bench.open(directory)
    setattr(bench.trt, flag, True)
    with pytest.raises(EngineFailed, match=f"{words} for 3 tiles of 16×16"):
        engine.infer(feed_of(engine, 3))
    setattr(bench.trt, flag, False)
    assert engine.infer(feed_of(engine, 3))["output"].shape == (3, 3, 16, 16)


@pytest.mark.parametrize("flag", ["refuse_contexts", "refuse_shapes", "refuse_execution"])
@pytest.mark.parametrize(
    "heard", ["Error Code 2: OutOfMemory (Requested size was 1207959552 bytes.)", "Cuda failure: out of memory"]
)
def test_batch_that_the_device_has_no_room_for_can_be_told_from_one_that_fails(bench, directory, flag, heard):
    engine = bench.open(directory)
    setattr(bench.trt, flag, True)
    bench.trt.logger.errors.append(heard)
    with pytest.raises(EngineOutOfMemory, match="for 3 tiles of 16×16"):
        engine.infer(feed_of(engine, 3))
    with pytest.raises(EngineFailed) as failed:
        engine.infer(feed_of(engine, 3))
    assert not isinstance(failed.value, EngineOutOfMemory)
    setattr(bench.trt, flag, False)
    assert engine.infer(feed_of(engine, 3))["output"].shape == (3, 3, 16, 16)


def test_plan_that_there_is_no_room_for_is_kept(ten, directory, monkeypatch):
    ten.open(directory).close()
    with monkeypatch.context() as patched:
        patched.setattr(ten.trt, "_deserialise", lambda _: ten.trt.logger.errors.append("cudaMalloc: out of memory"))
        with pytest.raises(EngineOutOfMemory, match="cannot load the plan: cudaMalloc: out of memory"):
            ten.open(directory)
    ten.open(directory)
    assert ten.trt.builds == 1


def test_batch_beyond_the_plan_fails_alone(ten, directory):
    engine = ten.open(directory)
    with pytest.raises(EngineFailed, match="no profile of the plan holds 5 tiles of 16×16"):
        engine.enqueue(BatchShape(5, 16, 16), Cuda(ten.device).stream())


def test_lost_context_kills_the_engine_and_closing_it_still_works(ten, directory):
    engine = ten.open(directory)
    ten.device.fail["cudaStreamSynchronize"] = Status.cudaErrorIllegalAddress
    with pytest.raises(EngineDead, match="context is lost"):
        engine.infer(feed_of(engine))
    ten.device.fail["cudaFree"] = Status.cudaErrorIllegalAddress
    with capture_logs() as logs:
        engine.close()
    assert [line["event"] for line in logs] == ["GPU memory not freed"]


def test_no_room_on_the_device_is_said_and_nothing_stays_taken(ten, directory):
    ten.device.fail["cudaMallocHost"] = Status.cudaErrorMemoryAllocation
    with pytest.raises(EngineOutOfMemory):
        ten.open(directory)
    assert ten.device.alive == 0


def test_closed_engine_gave_everything_back_and_is_dead(bench, directory):
    engine = bench.open(directory)
    engine.infer(feed_of(engine, 3))
    engine.close()
    engine.close()
    assert bench.device.alive == 0
    with pytest.raises(EngineDead, match="closed"):
        engine.infer(feed_of(engine))


def test_only_so_many_shapes_keep_their_graphs(ten, directory):
    engine = ten.open(directory)
    engine._runtime.max_shapes = 2
    for batch in (1, 2, 3, 4, 1):
        engine.infer(feed_of(engine, batch))
    assert len(engine._runtime._runners) == 2
    assert len(ten.device.graphs) == 2


def test_pipeline_may_fill_the_device_memory_itself(ten, directory):
    engine = ten.open(directory)
    cuda = Cuda(ten.device)
    _, feed = next(probe_feeds(engine.manifest))
    wanted = engine.infer(feed)["output"].copy()
    stream = cuda.stream()
    engine.enqueue(BatchShape(2, 16, 16), stream)
    stream.synchronise()
    device, pinned = engine._io._buffers["output"]
    assert engine.addresses["output"] == device.address
    cuda.copy_out(pinned, device, wanted.nbytes, stream)
    stream.synchronise()
    np.testing.assert_array_equal(pinned.array(wanted.shape, "float32"), wanted)


@pytest.mark.parametrize("max_batch", [1, 4])
def test_row_has_as_many_samples_as_a_request_may_ask_for_whatever_the_largest_batch(bench, publish, max_batch):
    directory = publish(onnx_model=several_samples_graph(), **SEVERAL_SAMPLES)
    engine = bench.open(directory, max_batch=max_batch)
    reference = OnnxRuntimeEngine(directory, engine.manifest)
    rng = np.random.default_rng(5)
    for rows, samples in [(1, 1), (1, 8), (min(2, max_batch), 2), (max_batch, 1)]:
        blank = blank_feed(engine.manifest, BatchShape(rows, 16, 32, samples))
        feed = {name: rng.random(array.shape, np.float32) for name, array in blank.items()}
        np.testing.assert_array_equal(engine.infer(feed)["output"], reference.infer(feed)["output"])
    with pytest.raises(EngineFailed, match="no profile of the plan holds"):
        engine.enqueue(BatchShape(1, 16, 32, 9), Cuda(bench.device).stream())
