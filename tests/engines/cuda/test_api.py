"""The CUDA objects: each does its work, in stream order."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from engines.cuda.api import Cuda, driver_version, open_cuda
from engines.errors import EngineDead, EngineUnavailable
from tests.fakes.cuda import FakeRuntime, Status


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


@pytest.fixture
def cuda(runtime) -> Cuda:
    return Cuda(runtime)


def test_device_is_described_for_fingerprints(cuda):
    assert cuda.device == ("Fake GPU", (8, 9), 13000, 1 << 30)


def test_bytes_go_to_the_device_and_back_in_stream_order(cuda, runtime):
    stream, device = cuda.stream(), cuda.device_buffer(64)
    there, back = cuda.pinned_buffer(64), cuda.pinned_buffer(64)
    there.array((4, 4), "float32")[:] = np.arange(16).reshape(4, 4)
    cuda.copy_in(device, there, 64, stream)
    cuda.copy_out(back, device, 64, stream)
    assert not back.array((16,), "float32").any()
    stream.synchronise()
    assert back.array((2, 8), "float32").ravel().tolist() == list(range(16))
    for thing in (stream, device, there, back):
        thing.close()
        thing.close()
    assert runtime.alive == 0


def test_bytes_move_within_the_device(cuda):
    stream, first, second = cuda.stream(), cuda.device_buffer(4), cuda.device_buffer(4)
    there, back = cuda.pinned_buffer(4), cuda.pinned_buffer(4)
    there.array((1,), "int32")[:] = 7
    cuda.copy_in(first, there, 4, stream)
    cuda.copy_within(second, first, 4, stream)
    cuda.copy_out(back, second, 4, stream)
    stream.synchronise()
    assert back.array((1,), "int32")[0] == 7


def test_event_makes_one_stream_wait_for_another(cuda):
    first, second, event = cuda.stream(), cuda.stream(), cuda.event()
    device, there, back = cuda.device_buffer(4), cuda.pinned_buffer(4), cuda.pinned_buffer(4)
    there.array((1,), "int32")[:] = 7
    cuda.copy_in(device, there, 4, first)
    event.record(first)
    second.wait_for(event)
    cuda.copy_out(back, device, 4, second)
    second.synchronise()
    assert back.array((1,), "int32")[0] == 7


def test_event_is_passed_and_timed(cuda, runtime):
    stream, start, end = cuda.stream(), cuda.event(), cuda.event()
    start.record(stream)
    end.record(stream)
    end.synchronise()
    assert end.seconds_since(start) == 0.0015
    for thing in (stream, start, end):
        thing.close()
    assert runtime.alive == 0


def test_mark_is_asked_about_without_waiting(cuda, runtime):
    stream, event, device, back = cuda.stream(), cuda.event(), cuda.device_buffer(4), cuda.pinned_buffer(4)
    back.array((1,), "int32")[:] = 7
    cuda.clear(device, 4, stream)
    cuda.copy_out(back, device, 4, stream)
    event.record(stream)
    assert not event.passed()
    assert back.array((1,), "int32")[0] == 7
    stream.synchronise()
    assert event.passed()
    assert back.array((1,), "int32")[0] == 0
    runtime.fail["cudaEventQuery"] = Status.cudaErrorIllegalAddress
    with pytest.raises(EngineDead, match="cudaEventQuery"):
        event.passed()


def test_graph_records_without_running_and_replays(cuda, runtime):
    stream, device = cuda.stream(), cuda.device_buffer(4)
    there, back = cuda.pinned_buffer(4), cuda.pinned_buffer(4)
    with cuda.capture(stream) as finish:
        cuda.copy_in(device, there, 4, stream)
        cuda.copy_out(back, device, 4, stream)
    graph = finish()
    for value in (1, 2):
        there.array((1,), "int32")[:] = value
        graph.launch(stream)
        stream.synchronise()
        assert back.array((1,), "int32")[0] == value
    graph.close()
    assert runtime.graphs == {}


@pytest.mark.parametrize("end_fails", [False, True])
def test_capture_that_fails_leaves_nothing_behind(cuda, runtime, end_fails):
    stream = cuda.stream()
    if end_fails:
        runtime.fail["cudaStreamEndCapture"] = Status.cudaErrorStreamCaptureUnsupported
    with pytest.raises(ValueError, match="surprise"), cuda.capture(stream):
        raise ValueError("surprise")
    assert runtime.graphs == {}
    assert "cudaStreamEndCapture" in runtime.calls


def test_host_without_a_gpu_is_unavailable():
    runtime = FakeRuntime()
    runtime.fail["cudaSetDevice"] = Status.cudaErrorNoDevice
    with pytest.raises(EngineUnavailable, match="nvidia-smi"):
        Cuda(runtime)


def test_thread_takes_the_device_before_it_uses_it(cuda, runtime):
    runtime.calls.clear()
    cuda.make_current()
    assert runtime.calls == ["cudaSetDevice"]


def test_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", None)
    with pytest.raises(EngineUnavailable, match=r"retouch install-gpu"):
        open_cuda()


def test_library_that_is_there_is_used(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", FakeRuntime())
    assert open_cuda(0).device.name == "Fake GPU"


def test_driver_is_asked_for_its_version_without_the_runtime(monkeypatch):
    class Driver:
        @staticmethod
        def cuDriverGetVersion(version: Any) -> int:  # noqa: N802 -- the library's name
            version._obj.value = 13000
            return 0

    monkeypatch.setattr("ctypes.CDLL", lambda _name: Driver())
    assert driver_version() == 13000


def test_host_without_a_driver_has_version_0(monkeypatch):
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr("ctypes.CDLL", missing)
    assert driver_version() == 0
