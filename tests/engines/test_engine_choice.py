"""The best working engine is chosen, with the reasons against the better ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnxruntime
import pytest

from engines import engine_choice
from engines.base import BatchShape, Engine, Feed, Outputs
from engines.cuda.api import Cuda
from engines.engine_choice import CANDIDATES, Candidate, EngineOptions, candidates_for, choose_engine, open_engine
from engines.errors import (
    DeviceLost,
    EngineError,
    EngineOutOfMemory,
    EngineUnavailable,
    LoadStopped,
    ModelCorrupt,
    ParityTooLow,
)
from engines.fake import FakeEngine
from engines.load_report import LoadReport
from engines.manifest import MANIFEST_FILE, ONNX_FILE, Manifest, read_manifest
from tests.engines.conftest import INT8, conv_graph, int8_graph
from tests.fakes.captured_logs import capture_logs
from tests.fakes.cuda import FakeRuntime
from tests.fakes.tensor_rt import FakeTensorRt


@pytest.fixture
def directory(publish) -> Path:
    return publish(onnx_model=conv_graph())


@pytest.fixture
def options(tmp_path) -> EngineOptions:
    return EngineOptions(threads=1, cache_dir=tmp_path / "cache")


def open_it(directory: Path, options: EngineOptions) -> Engine:
    return open_engine(directory, read_manifest(directory), options)


@pytest.mark.parametrize(
    ("choice", "names"),
    [("auto", ["trt", "inductor", "onnxrt-cuda", "openvino", "onnxrt"]), ("onnxrt", ["onnxrt"]), ("fake", ["fake"])],
)
def test_auto_tries_the_real_engines_best_first_and_a_name_only_itself(choice, names):
    assert [candidate.name for candidate in candidates_for(choice)] == names


def test_auto_without_a_gpu_takes_openvino_and_says_so(directory, options):
    with capture_logs() as logs:
        engine, passed_over = choose_engine(directory, read_manifest(directory), options, gpu_is_here=lambda: False)
    assert engine.name == "openvino"
    (line,) = logs
    assert (line["event"], line["engine"], line["model"]) == ("engine chosen", "openvino", "tiny/1")
    assert line["passed_over"] == passed_over
    assert passed_over == dict.fromkeys(("trt", "inductor", "onnxrt-cuda"), "no NVIDIA GPU here")


def test_auto_without_openvino_takes_onnx_runtime_and_says_why(directory, options, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    engine, passed_over = choose_engine(directory, read_manifest(directory), options, gpu_is_here=lambda: False)
    assert engine.name == "onnxrt"
    assert passed_over["openvino"] == "openvino is not installed; pip install openvino"


def test_gpu_without_its_libraries_is_told_what_to_install(directory, options, monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", None)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    engine, passed_over = choose_engine(directory, read_manifest(directory), options, gpu_is_here=lambda: True)
    assert engine.name == "openvino"
    assert passed_over == {
        "trt": "cuda-python is not installed; retouch install-gpu",
        "inductor": f"{directory / 'program.pt2'} is not there; retouch export --program writes it",
        "onnxrt-cuda": "this onnxruntime has no CUDA provider; `retouch install-gpu` may replace it by one",
    }


def test_auto_on_a_gpu_takes_tensorrt(directory, options, monkeypatch):
    device = FakeRuntime()
    monkeypatch.setattr(engine_choice, "open_cuda", lambda _index: Cuda(device))
    monkeypatch.setattr(engine_choice, "load_tensorrt", FakeTensorRt(device).library)
    engine, passed_over = choose_engine(directory, read_manifest(directory), options, gpu_is_here=lambda: True)
    assert (engine.name, engine.device, passed_over) == ("trt", "cuda:0", {})
    engine.close()


def test_engine_for_gpus_is_refused_by_name_without_one(directory, options):
    with pytest.raises(EngineUnavailable, match=r"no engine can run tiny/1 here \(trt: no NVIDIA GPU here"):
        choose_engine(directory, read_manifest(directory), replace(options, choice="trt"), gpu_is_here=lambda: False)


def test_surprise_of_one_runtime_does_not_keep_the_next_from_serving(directory, options):
    def surprise(_directory: Path, _manifest: Manifest, _options: EngineOptions) -> Engine:
        raise AttributeError("an API that changed")

    fake = next(candidate for candidate in CANDIDATES if candidate.name == "fake")
    with capture_logs() as logs:
        opened = choose_engine(directory, read_manifest(directory), options, (Candidate("openvino", surprise), fake))
    assert opened.passed_over == {"openvino": "AttributeError: an API that changed"}
    assert [line["event"] for line in logs] == ["engine failed to open", "engine chosen"]


def test_a_gpu_is_left_alone_on_request(directory, options):
    on_cpu = replace(options, device="cpu")
    engine, passed_over = choose_engine(directory, read_manifest(directory), on_cpu, gpu_is_here=lambda: True)
    assert engine.device == "cpu"
    gpus = ("trt", "inductor", "onnxrt-cuda")
    assert passed_over == dict.fromkeys(gpus, "--device cpu leaves the GPU alone")


def test_what_is_done_next_is_told(directory, options):
    told: list[str] = []
    shapes = [BatchShape(1, 16, 16), BatchShape(2, 16, 16)]
    fake = next(candidate for candidate in CANDIDATES if candidate.name == "fake")
    notified = replace(options, notify=told.append)
    choose_engine(directory, read_manifest(directory), notified, (fake,), warm_up_shapes=lambda _: shapes)
    assert told == ["opening fake", "warming up fake, shape 1 of 2", "warming up fake, shape 2 of 2"]


def test_no_other_runtime_is_tried_when_the_process_ends(directory, options):
    report = LoadReport()

    def end_meanwhile(_directory: Path, _manifest: Manifest, _options: EngineOptions) -> Engine:
        report.stop()
        raise EngineUnavailable("not here")

    first = Candidate("openvino", end_meanwhile)
    fake = next(candidate for candidate in CANDIDATES if candidate.name == "fake")
    with report.loading("tiny/1"), pytest.raises(LoadStopped):
        choose_engine(directory, read_manifest(directory), replace(options, notify=report.step), (first, fake))


def test_engine_under_the_bar_is_passed_over(directory, options):
    def under_the_bar(_directory: Path, manifest: Manifest, _options: EngineOptions) -> Engine:
        raise ParityTooLow("31 dB, the bar is 45 dB")

    fake = next(candidate for candidate in CANDIDATES if candidate.name == "fake")
    among = (Candidate("openvino", under_the_bar), fake)
    engine, passed_over = choose_engine(directory, read_manifest(directory), options, among)
    assert isinstance(engine, FakeEngine)
    assert passed_over == {"openvino": "31 dB, the bar is 45 dB"}


class FailsItsWarmUp(FakeEngine):
    """An engine that raises a chosen error at the first batch, and counts how often it is closed."""

    error: Exception
    closes = 0

    def infer(self, feed: Feed) -> Outputs:
        raise self.error

    def close(self) -> None:
        self.closes += 1
        super().close()


def failing(manifest: Manifest, error: Exception) -> FailsItsWarmUp:
    engine = FailsItsWarmUp(manifest)
    engine.error = error
    return engine


def one_shape(_engine: Engine) -> list[BatchShape]:
    return [BatchShape(2, 16, 16)]


def test_engine_runs_its_shapes_before_it_is_chosen(directory):
    engine = open_engine(directory, read_manifest(directory), EngineOptions(choice="fake"), one_shape)
    assert isinstance(engine, FakeEngine)
    assert (engine.batches, engine.samples) == (1, 2)


def test_engine_without_room_for_its_shapes_is_closed_and_passed_over(directory, options):
    manifest = read_manifest(directory)
    full = failing(manifest, EngineOutOfMemory("the GPU is out of memory"))
    among = (Candidate("trt", lambda *_: full), Candidate("openvino", lambda *_: FakeEngine(manifest)))
    engine, passed_over = choose_engine(directory, manifest, options, among, warm_up_shapes=one_shape)
    assert type(engine) is FakeEngine
    assert passed_over == {"trt": "the GPU is out of memory"}
    assert full.closes == 1


@pytest.mark.parametrize("when", ["opening", "warming up"])
def test_lost_device_is_not_hidden_behind_the_next_engine(directory, options, when):
    manifest = read_manifest(directory)
    lost = DeviceLost("the GPU context is lost")

    def lose(*_: object) -> Engine:
        if when == "opening":
            raise lost
        return failing(manifest, lost)

    among = (Candidate("trt", lose), Candidate("openvino", lambda *_: FakeEngine(manifest)))
    with pytest.raises(DeviceLost, match="context is lost"):
        choose_engine(directory, manifest, options, among, warm_up_shapes=one_shape)


@pytest.mark.parametrize("order", [1, -1])
def test_that_only_memory_is_missing_can_be_told_from_what_cannot_change(directory, options, order):
    def opener(error: EngineError) -> Callable[..., Engine]:
        def fail(*_: object) -> Engine:
            raise error

        return fail

    among = (
        Candidate("trt", opener(EngineOutOfMemory("the GPU is full"))),
        Candidate("openvino", opener(EngineUnavailable("not installed"))),
    )[::order]
    with pytest.raises(EngineOutOfMemory, match=r"no engine can run tiny/1 here.*trt: the GPU is full"):
        choose_engine(directory, read_manifest(directory), options, among)


def test_when_none_works_every_reason_is_given(directory, options, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(EngineUnavailable, match=r"tiny/1.*openvino: openvino is not.*onnxrt: onnxruntime is not"):
        open_it(directory, options)


def test_onnx_of_another_digest_is_corrupt(directory, options):
    (directory / ONNX_FILE).write_bytes(conv_graph(gain=2))
    with pytest.raises(ModelCorrupt, match="sha256"):
        open_it(directory, options)


def test_missing_onnx_is_corrupt(directory, options):
    (directory / ONNX_FILE).unlink()
    with pytest.raises(ModelCorrupt, match="cannot be read"):
        open_it(directory, options)


def test_fake_needs_only_the_manifest_and_takes_its_time_from_the_options(directory):
    for path in directory.iterdir():
        if path.name != MANIFEST_FILE:
            path.unlink()
    engine = open_it(directory, EngineOptions(choice="fake", fake_batch_s=0.25))
    assert isinstance(engine, FakeEngine)
    assert engine.batch_s == 0.25


def test_int8_can_be_forbidden(publish, options):
    directory = publish(onnx_model=int8_graph(), **INT8)
    assert open_it(directory, replace(options, choice="openvino")).precision == "int8"
    with pytest.raises(EngineUnavailable, match=r"tiny/1 is INT8, which --no-allow-int8 forbids"):
        open_it(directory, replace(options, int8=False))


def test_forbidding_int8_leaves_other_models_alone(directory, options):
    assert open_it(directory, replace(options, choice="onnxrt", int8=False)).precision == "fp32"
