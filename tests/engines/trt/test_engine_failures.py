"""How the TensorRT engine handles failures of a batch, a shape, the memory or the device."""

from __future__ import annotations

import pytest

from engines.base import BatchShape
from engines.cuda.api import Cuda
from engines.errors import EngineDead, EngineFailed, EngineOutOfMemory
from tests.engines.trt.bench import feed_of
from tests.fakes.captured_logs import capture_logs
from tests.fakes.cuda import Status


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
