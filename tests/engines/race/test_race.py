"""Engines are timed side by side; only a clear winner is preferred to the fixed order, and that is remembered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from engines import engine_choice
from engines.base import BatchShape, Feed, Outputs
from engines.cuda.api import Cuda
from engines.engine_choice import CANDIDATES, Candidate, EngineOptions, choose_engine
from engines.errors import DeviceLost, EngineError, EngineFailed, EngineOutOfMemory, EngineUnavailable
from engines.fake import FakeEngine
from engines.manifest import Manifest, read_manifest
from engines.race.finding import Course, find_fastest, processor_facts
from engines.race.timing import Racer, run_race
from tests.engines.conftest import conv_graph
from tests.fakes.clock import Clock
from tests.fakes.cuda import FakeRuntime

SMALL, LARGE = BatchShape(1, 16, 16), BatchShape(8, 16, 16)


@dataclass
class Track:
    """Engines that take the milliseconds that are given for each shape, on a clock that only they move."""

    directory: Path
    clock: Clock
    batches: int = 0
    open_engines: int = 0

    def racer(self, name: str, *ms: float, error: EngineError | None = None, from_batch: int = 1) -> Racer:
        track, manifest = self, read_manifest(self.directory)

        class Timed(FakeEngine):
            batches = 0

            def infer(self, feed: Feed) -> Outputs:
                self.batches += 1
                track.batches += 1
                if error is not None and self.batches >= from_batch:
                    raise error
                shape = LARGE if len(feed["image"]) > 1 else SMALL
                track.clock.now += dict(zip((SMALL, LARGE), (*ms, *ms[-1:]), strict=False))[shape] / 1e3
                return {}

            def close(self) -> None:
                track.open_engines -= 1

        def opened() -> FakeEngine:
            if error is not None and from_batch == 0:
                raise error
            track.open_engines += 1
            return Timed(manifest)

        return Racer(name, opened)

    def run(self, *racers: Racer, seconds: float = 1.0, shapes=(SMALL, LARGE)):
        return run_race(racers, shapes, seconds, clock=self.clock)


@pytest.fixture
def directory(publish) -> Path:
    return publish(onnx_model=conv_graph())


@pytest.fixture
def track(directory) -> Track:
    return Track(directory, Clock())


@pytest.mark.parametrize(
    ("second_ms", "order"),
    [
        pytest.param((9.0,), ("second", "first"), id="clearly faster"),
        pytest.param((9.6,), ("first", "second"), id="by less than the margin"),
        pytest.param((10.0,), ("first", "second"), id="the same"),
        pytest.param((30.0,), ("first", "second"), id="slower"),
        pytest.param((5.0, 15.0), ("second", "first"), id="twice as fast alone, half as slow again in batches"),
        pytest.param((5.0, 25.0), ("first", "second"), id="twice as fast alone, 2.5 times as slow in batches"),
    ],
)
def test_an_engine_is_preferred_if_it_is_faster_by_the_margin_over_all_shapes(track, second_ms, order):
    result = track.run(track.racer("first", 10.0), track.racer("second", *second_ms))
    assert result.order == order
    assert f"first 10, second {second_ms[0]:g} ms at 1 × 16×16" in result.why
    assert track.open_engines == 0


def test_three_engines_are_ordered_by_speed(track):
    result = track.run(track.racer("a", 10.0), track.racer("b", 8.0), track.racer("c", 6.0))
    assert result.order == ("c", "b", "a")
    assert result.why.startswith("race: c is faster (a 10, b 8, c 6 ms at 1 × 16×16; ")


def test_a_slow_first_batch_which_compiles_does_not_count(track):
    compiling = track.racer("first", 8.0)

    def slow_start() -> FakeEngine:
        track.clock.now += 100
        return compiling.open()

    assert track.run(Racer("first", slow_start), track.racer("second", 10.0)).order == ("first", "second")


def test_the_time_is_bounded_and_each_shape_gets_a_share(track):
    began = track.clock.now
    track.run(track.racer("first", 10.0), track.racer("second", 10.0), seconds=2.0)
    assert 1.5 < track.clock.now - began < 3.0


def test_a_shape_for_which_no_time_is_left_is_not_raced(track):
    result = track.run(track.racer("first", 900.0), track.racer("second", 500.0), seconds=1.0)
    assert result.order == ("second", "first")
    assert "8 × 16×16" not in result.why
    assert track.batches == 2 * (2 + 3)


def test_an_engine_that_cannot_be_opened_or_fails_on_the_way_is_left_out(track):
    missing = track.racer("missing", 1.0, error=EngineUnavailable("not installed"), from_batch=0)
    failing = track.racer("failing", 1.0, error=EngineFailed("a bad kernel"), from_batch=4)
    with capture_logs() as logs:
        result = track.run(missing, failing, track.racer("a", 10.0), track.racer("b", 5.0))
    assert result.order == ("b", "a")
    assert [(line["event"], line["engine"], line["reason"]) for line in logs] == [
        ("not in the race", "missing", "not installed"),
        ("out of the race", "failing", "a bad kernel"),
    ]
    assert track.open_engines == 0


def test_one_engine_that_is_left_has_won(track):
    failing = track.racer("failing", 1.0, error=EngineFailed("a bad kernel"))
    result = track.run(failing, track.racer("a", 10.0))
    assert (result.order, result.why) == (("a",), "race: only a runs here")


def test_without_any_engine_there_is_no_result(track):
    assert track.run(track.racer("gone", 1.0, error=EngineUnavailable("x"), from_batch=0)) is None


@pytest.fixture
def course(directory) -> Course:
    return Course(directory, read_manifest(directory), 8, {"threads": 1})


def test_a_result_is_remembered_for_the_same_model_shapes_versions_and_device(track, course, tmp_path):
    racers = [track.racer("first", 10.0), track.racer("second", 5.0)]
    gpu = {"name": "L4", "driver": 13000}

    def found(of: Course = course, device=gpu, seconds: float = 0.0):
        return find_fastest(racers, of, device, tmp_path / "races", seconds)

    assert found() is None
    raced = found(seconds=0.01)
    assert found() == raced
    assert found(device={**gpu, "driver": 13010}) is None
    assert found(of=course._replace(max_batch=4)) is None
    assert found(of=course._replace(settings={"threads": 2})) is None
    (course.directory / "program.pt2").touch()
    assert found() is None


def test_a_race_that_fails_leaves_the_fixed_order_and_says_so(track, course, tmp_path):
    full = track.racer("first", 1.0, error=EngineOutOfMemory("two engines are too many"), from_batch=3)
    with capture_logs() as logs:
        assert find_fastest([full, track.racer("second", 5.0)], course, {}, tmp_path, 1.0) is None
    assert logs[-1]["event"] == "race failed, the fixed order holds"
    assert "two engines are too many" in logs[-1]["reason"]
    assert find_fastest([], course, {}, tmp_path, 0.0) is None, "nothing is remembered"


def test_a_lost_device_ends_the_process(track, course, tmp_path):
    lost = track.racer("first", 1.0, error=DeviceLost("illegal address"))
    with pytest.raises(DeviceLost):
        find_fastest([lost, track.racer("second", 5.0)], course, {}, tmp_path, 1.0)


def test_a_damaged_result_counts_as_none(track, course, tmp_path):
    racers = [track.racer("first", 10.0), track.racer("second", 5.0)]
    find_fastest(racers, course, {}, tmp_path, 0.01)
    (path,) = tmp_path.glob("*.json")
    path.write_text("{")
    assert find_fastest(racers, course, {}, tmp_path, 0.0) is None


def test_the_shapes_are_a_lone_sample_and_a_full_batch_of_small_tiles_and_a_lone_large_one(directory):
    manifest = read_manifest(directory)
    tiles = list(manifest.size.tile_sizes())
    shapes = Course(directory, manifest, 4, {}).shapes()
    assert shapes[:2] == [BatchShape(1, *min(tiles)), BatchShape(4, *min(tiles))]
    assert shapes[-1][1:3] == max(tiles)


def test_the_processor_is_named(tmp_path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: EPYC\n")
    assert processor_facts(tmp_path / "cpuinfo")["processor"] == "EPYC"
    assert processor_facts(tmp_path / "none")["processor"] == ""


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
    options = EngineOptions(threads=1, cache_dir=tmp_path / "cache", race_s=0.2, race_on_cpu=True)
    for given in (options, replace(options, race_s=0.0, race_on_cpu=False)):  # the second remembers
        engine, passed_over = choose_engine(
            directory, read_manifest(directory), given, with_fast_onnxrt(), gpu_is_here=lambda: False
        )
        assert engine.name == "onnxrt"
        assert "race: onnxrt is faster (openvino " in engine.note
        assert passed_over["openvino"] in engine.note
        assert passed_over["trt"] == "no NVIDIA GPU here"


def test_engines_of_a_gpu_race_at_the_first_load_and_another_gpu_makes_them_race_again(
    directory, tmp_path, monkeypatch
):
    device = FakeRuntime()
    monkeypatch.setattr(engine_choice, "open_cuda", lambda _index: Cuda(device))
    opened: list[str] = []

    def candidate(name: str, engine: type[FakeEngine]) -> Candidate:
        def opening(_directory: Path, manifest: Manifest, _options: EngineOptions) -> FakeEngine:
            opened.append(name)
            return engine(manifest, batch_s=0.002) if engine is FakeEngine else engine(manifest)

        return Candidate(name, opening, needs_gpu=True)

    among = (candidate("trt", FakeEngine), candidate("inductor", Fast), *with_fast_onnxrt()[3:])
    options = EngineOptions(cache_dir=tmp_path, race_s=0.1)
    for _ in range(2):
        engine, passed_over = choose_engine(directory, read_manifest(directory), options, among, lambda: True)
        assert "race: inductor is faster (trt " in engine.note
        assert list(passed_over) == ["trt"]
    assert opened == ["trt", "inductor", "inductor", "inductor"]
    device.name = b"Another GPU"
    choose_engine(directory, read_manifest(directory), options, among, lambda: True)
    assert opened[4:] == ["trt", "inductor", "inductor"]


def test_a_real_race_of_openvino_and_onnx_runtime_ends_with_one_of_them(directory, tmp_path):
    options = EngineOptions(threads=1, cache_dir=tmp_path, race_s=0.3, race_on_cpu=True)
    engine, _ = choose_engine(directory, read_manifest(directory), options, gpu_is_here=lambda: False)
    assert engine.name in {"openvino", "onnxrt"}
    assert "ms at 1 × " in engine.note
    engine.close()


@pytest.mark.parametrize("changed", [{"race_s": 0.0}, {"race_on_cpu": False}, {"choice": "openvino"}])
def test_a_cpu_races_only_on_request_and_only_where_the_engine_is_free(directory, tmp_path, changed):
    options = replace(EngineOptions(threads=1, cache_dir=tmp_path, race_s=0.3, race_on_cpu=True), **changed)
    engine, _ = choose_engine(directory, read_manifest(directory), options, gpu_is_here=lambda: False)
    assert (engine.name, "race" in engine.note) == ("openvino", False)
    assert not (tmp_path / "races").exists()
    engine.close()
