"""The TensorRT engine on a fake device in host memory: plans, caches, parity, copies, graphs and their failures."""

from __future__ import annotations

import numpy as np
import pytest

from engines.base import BatchShape, blank_feed
from engines.cuda.api import Cuda
from engines.errors import EngineFailed, EngineUnavailable, ParityTooLow
from engines.onnxrt import OnnxRuntimeEngine
from engines.parity.probes import probe_feeds
from tests.engines.conftest import SEVERAL_SAMPLES, conv_graph, several_samples_graph
from tests.engines.trt.bench import Bench, feed_of
from tests.fakes.cuda import Status


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
