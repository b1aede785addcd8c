"""An engine that loses the GPU while it loads a model ends the process; the next process passes the engine over."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from engines.base import BatchShape, Engine, Feed, Outputs
from engines.cuda.api import Cuda
from engines.cuda.lost_gpu import GpuLossMemory, GpuUse
from engines.cuda.status_errors import error_for_status
from engines.engine_choice import Candidate, ChosenEngine, EngineOptions, choose_engine
from engines.errors import DeviceLost, EngineUnavailable
from engines.fake import FakeEngine
from engines.manifest import Manifest, read_manifest
from engines.race.finding import Setup
from tests.engines.conftest import conv_graph
from tests.fakes.captured_logs import capture_logs
from tests.fakes.cuda import FakeRuntime

ILLEGAL = "CUDA error: an illegal memory access was encountered; start the process again"


@pytest.fixture
def directory(publish) -> Path:
    return publish(onnx_model=conv_graph())


@pytest.fixture
def options(tmp_path) -> EngineOptions:
    return EngineOptions(cache_dir=tmp_path / "cache")


class LosesTheGpu(FakeEngine):
    """An engine whose batches lose the GPU."""

    def infer(self, feed: Feed) -> Outputs:
        raise DeviceLost(ILLEGAL)


def lose_at_once(*_: object) -> Engine:
    raise DeviceLost(ILLEGAL)


def lose_with(status: str) -> Callable[..., Engine]:
    def fail(*_: object) -> Engine:
        raise error_for_status("cudaStreamSynchronize", f"cudaError{status}")

    return fail


def lose_at_a_batch(_directory: Path, manifest: Manifest, _options: EngineOptions) -> Engine:
    return LosesTheGpu(manifest)


def work(_directory: Path, manifest: Manifest, _options: EngineOptions) -> Engine:
    return FakeEngine(manifest)


def wait_for_the_other(met: threading.Event, leave: threading.Event) -> Callable[..., Engine]:
    """Return an opener that sets `met` when it begins, and waits for `leave`."""

    def opened(_directory: Path, manifest: Manifest, _options: EngineOptions) -> Engine:
        met.set()
        assert leave.wait(5)
        return FakeEngine(manifest)

    return opened


def choose(
    directory: Path, options: EngineOptions, lose: Callable[..., Engine] = lose_at_once, gpu: FakeRuntime | None = None
) -> ChosenEngine:
    among = (Candidate("inductor", lose, needs_gpu=True), Candidate("onnxrt-cuda", work, needs_gpu=True))
    device = gpu or FakeRuntime()
    return choose_engine(
        directory,
        read_manifest(directory),
        options,
        among,
        gpu_is_here=lambda: True,
        warm_up_shapes=lambda _: [BatchShape(1, 16, 16)],
        open_gpu=lambda _index: Cuda(device),
    )


@pytest.mark.parametrize("lose", [lose_at_once, lose_at_a_batch], ids=["opening", "warming up"])
def test_the_next_process_takes_the_next_engine_and_keeps_the_reason(directory, options, lose):
    with pytest.raises(DeviceLost):
        choose(directory, options, lose)
    opened = choose(directory, options, lose)
    assert type(opened.engine) is FakeEngine
    assert opened.passed_over == {
        "inductor": f"it lost the GPU when it loaded this model before ({ILLEGAL}); "
        f"remove {options.cache_dir / 'losses'} to try it again"
    }


@pytest.mark.parametrize("lose", [lose_at_once, lose_at_a_batch], ids=["opening", "racing"])
def test_an_engine_that_lost_the_gpu_in_a_race_is_left_out_of_the_next(directory, options, lose):
    racing = replace(options, race_s=0.01)
    with pytest.raises(DeviceLost):
        choose(directory, racing, lose)
    opened = choose(directory, racing, lose)
    assert type(opened.engine) is FakeEngine
    assert "it lost the GPU" in opened.passed_over["inductor"]


def test_an_engine_chosen_by_name_is_refused_and_other_models_are_served(publish, directory, options):
    by_name = replace(options, choice="inductor")
    with pytest.raises(DeviceLost):
        choose_by_name(directory, by_name, lose_at_once)
    with pytest.raises(EngineUnavailable, match="inductor: it lost the GPU"):
        choose_by_name(directory, by_name, lose_at_once)
    assert choose_by_name(publish(name="other", onnx_model=conv_graph()), by_name, work).passed_over == {}


def choose_by_name(directory: Path, options: EngineOptions, opening: Callable[..., Engine]) -> ChosenEngine:
    among = (Candidate("inductor", opening, needs_gpu=True),)
    return choose_engine(directory, read_manifest(directory), options, among, gpu_is_here=lambda: True)


def test_another_gpu_and_a_new_program_are_tried_anew(directory, options):
    def is_lost(gpu: FakeRuntime | None = None) -> bool:
        try:
            choose(directory, options, gpu=gpu)
        except DeviceLost:
            return True
        return False

    assert (is_lost(), is_lost(), is_lost(FakeRuntime(b"Another GPU"))) == (True, False, True)
    program = directory / "program.pt2"
    program.write_bytes(b"")
    os.utime(program, (1, 1))
    assert is_lost()


def test_removing_the_memory_tries_the_engine_again(directory, options):
    with pytest.raises(DeviceLost):
        choose(directory, options)
    choose(directory, options)
    for path in (options.cache_dir / "losses").iterdir():
        path.unlink()
    with pytest.raises(DeviceLost):
        choose(directory, options)


def test_a_loss_beside_a_loaded_model_is_held_against_no_engine(publish, directory, options):
    served = choose(publish(name="served", onnx_model=conv_graph()), options, work)
    with capture_logs() as logs, pytest.raises(DeviceLost):
        choose(directory, options)
    assert [line["event"] for line in logs] == ["GPU lost with other models loaded: no engine is passed over for it"]
    assert choose(directory, in_new_process(options), work).passed_over == {}
    assert served.engine.name == "fake"


def test_a_loss_beside_a_model_that_began_to_load_later_is_held_against_no_engine(publish, directory, options):
    met, leave = threading.Event(), threading.Event()

    def lose_beside_it(*_: object) -> Engine:
        slow = loader.submit(choose, other, options, wait_for_the_other(met, leave))
        assert met.wait(5)
        leave.set()
        slow.result(5)
        raise DeviceLost(ILLEGAL)

    other = publish(name="other", onnx_model=conv_graph())
    with ThreadPoolExecutor(1) as loader, pytest.raises(DeviceLost):
        choose(directory, options, lose_beside_it)
    assert choose(directory, in_new_process(options), work).passed_over == {}


def test_after_a_loss_no_later_engine_of_the_process_is_blamed(publish, directory, options):
    later = publish(name="later", onnx_model=conv_graph())
    for lost in (directory, later):
        with pytest.raises(DeviceLost):
            choose(lost, options)
    fresh = in_new_process(options)
    assert list(choose(directory, fresh, work).passed_over) == ["inductor"]
    assert choose(later, fresh, work).passed_over == {}


def test_a_freed_model_is_no_longer_beside_another(publish, directory, options):
    choose(publish(name="freed", onnx_model=conv_graph()), options, work).engine.close()
    with pytest.raises(DeviceLost):
        choose(directory, options)
    assert list(choose(directory, in_new_process(options), work).passed_over) == ["inductor"]


@pytest.mark.parametrize("status", ["ECCUncorrectable", "NvlinkUncorrectable", "DevicesUnavailable", "CudartUnloading"])
def test_a_fault_of_the_device_or_its_driver_is_held_against_no_engine(directory, options, status):
    with pytest.raises(DeviceLost, match=status):
        choose(directory, options, lose_with(status))
    assert choose(directory, in_new_process(options), work).passed_over == {}


@pytest.mark.parametrize("status", ["IllegalAddress", "LaunchFailure", "MisalignedAddress", "Assert"])
def test_a_fault_of_a_kernel_is_held_against_its_engine(directory, options, status):
    with pytest.raises(DeviceLost, match=status):
        choose(directory, options, lose_with(status))
    assert list(choose(directory, in_new_process(options), work).passed_over) == ["inductor"]


def test_a_folder_that_cannot_be_read_leaves_out_the_memory_only(directory, tmp_path):
    setup = Setup(tmp_path / ("x" * 300), read_manifest(directory), 1, {})
    with capture_logs() as logs:
        assert GpuLossMemory(tmp_path / "losses", setup, dict, GpuUse()).why_not("inductor") == ""
    assert [line["event"] for line in logs] == ["losses of the GPU not read"]


def in_new_process(options: EngineOptions) -> EngineOptions:
    return replace(options, gpu_use=GpuUse())
