"""The winner of a race is chosen, of a race run now or an earlier one; a server runs no race itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engines.base import Feed, Outputs
from engines.cuda.api import Cuda
from engines.engine_choice import CANDIDATES, Candidate, ChosenEngine, EngineOptions, choose_engine
from engines.errors import EngineUnavailable
from engines.fake import FakeEngine
from engines.manifest import Manifest, read_manifest
from tests.engines.conftest import conv_graph
from tests.fakes.cuda import FakeRuntime


@pytest.fixture
def directory(publish) -> Path:
    return publish(onnx_model=conv_graph())


class Fast(FakeEngine):
    """An engine that wins any race."""

    def __init__(self, manifest) -> None:
        super().__init__(manifest)
        self.name = "onnxrt"

    def infer(self, feed: Feed) -> Outputs:
        return {}


def with_fast_onnxrt() -> tuple[Candidate, ...]:
    fast = Candidate("onnxrt", lambda _directory, manifest, _options: Fast(manifest))
    return tuple(fast if one.name == "onnxrt" else one for one in CANDIDATES if one.automatic)


def test_auto_prefers_the_winner_and_gives_the_race_as_the_reason(directory, tmp_path):
    options = EngineOptions(threads=1, cache_dir=tmp_path / "cache", race_s=0.2)
    for given in (options, replace(options, race_s=0.0)):  # the second uses the stored result
        engine, passed_over = choose_engine(
            directory, read_manifest(directory), given, with_fast_onnxrt(), gpu_is_here=lambda: False
        )
        assert engine.name == "onnxrt"
        assert "race: onnxrt is faster (openvino " in engine.note
        assert passed_over["openvino"] in engine.note
        assert passed_over["trt"] == "no NVIDIA GPU here"


def test_engines_of_a_gpu_race_once_and_another_gpu_makes_them_race_again(directory, tmp_path):
    device = FakeRuntime()
    opened: list[str] = []

    def candidate(name: str, engine: type[FakeEngine]) -> Candidate:
        def opening(_directory: Path, manifest: Manifest, _options: EngineOptions) -> FakeEngine:
            opened.append(name)
            return engine(manifest, batch_s=0.002) if engine is FakeEngine else engine(manifest)

        return Candidate(name, opening, needs_gpu=True)

    among = (candidate("trt", FakeEngine), candidate("inductor", Fast), *with_fast_onnxrt()[3:])
    options = EngineOptions(cache_dir=tmp_path, race_s=0.1)

    def choose(given: EngineOptions = options) -> ChosenEngine:
        return choose_engine(
            directory, read_manifest(directory), given, among, lambda: True, open_gpu=lambda _index: Cuda(device)
        )

    for _ in range(2):
        engine, passed_over = choose()
        assert "race: inductor is faster (trt " in engine.note
        assert list(passed_over) == ["trt"]
    assert opened == ["trt", "inductor", "inductor", "inductor"]
    device.name = b"Another GPU"
    assert choose(replace(options, race_s=0.0)).engine.name == "fake"
    assert opened[4:] == ["trt"], "a server does not race"
    choose()
    assert opened[5:] == ["trt", "inductor", "inductor"]


def test_the_only_engine_that_finishes_is_not_opened_again_and_the_others_have_their_reasons(directory, tmp_path):
    opened: list[str] = []

    def failing(_directory: Path, _manifest: Manifest, _options: EngineOptions) -> FakeEngine:
        opened.append("openvino")
        raise EngineUnavailable("not today")

    def working(_directory: Path, manifest: Manifest, _options: EngineOptions) -> FakeEngine:
        opened.append("onnxrt")
        return FakeEngine(manifest)

    among = (Candidate("openvino", failing), Candidate("onnxrt", working))
    options = EngineOptions(cache_dir=tmp_path, race_s=0.1)
    _, passed_over = choose_engine(directory, read_manifest(directory), options, among, gpu_is_here=lambda: False)
    assert opened == ["openvino", "onnxrt"]
    assert passed_over == {"openvino": "not today"}


def test_a_real_race_of_openvino_and_onnx_runtime_ends_with_one_of_them(directory, tmp_path):
    options = EngineOptions(threads=1, cache_dir=tmp_path, race_s=0.3)
    engine, _ = choose_engine(directory, read_manifest(directory), options, gpu_is_here=lambda: False)
    assert engine.name in {"openvino", "onnxrt"}
    assert "ms at 1 × " in engine.note
    engine.close()


@pytest.mark.parametrize("changed", [{"race_s": 0.0}, {"choice": "openvino"}])
def test_engines_race_only_on_request_and_only_where_the_engine_is_free(directory, tmp_path, changed):
    options = replace(EngineOptions(threads=1, cache_dir=tmp_path, race_s=0.3), **changed)
    engine, _ = choose_engine(directory, read_manifest(directory), options, gpu_is_here=lambda: False)
    assert (engine.name, "race" in engine.note) == ("openvino", False)
    assert not (tmp_path / "races").exists()
    engine.close()
