"""A race's result is stored under everything that it depends on; after a failed race the fixed order holds."""

from __future__ import annotations

import os

import pytest

from engines.base import BatchShape
from engines.errors import DeviceLost, EngineOutOfMemory
from engines.manifest import read_manifest
from engines.race.finding import Setup, find_fastest, processor_facts
from engines.race.timing import Raced
from tests.fakes.captured_logs import capture_logs


@pytest.fixture
def setup(directory) -> Setup:
    return Setup(directory, read_manifest(directory), 8, {"threads": 1})


def test_a_result_is_remembered_for_the_same_model_shapes_versions_and_device(track, setup, tmp_path):
    racers = [track.racer("first", 10.0), track.racer("second", 5.0)]
    gpu = {"name": "L4", "driver": 13000}

    def found(of: Setup = setup, device=gpu, seconds: float = 0.0):
        return find_fastest(racers, of, lambda: device, tmp_path / "races", seconds)

    assert found() is None
    raced = found(seconds=0.01)
    assert found() == Raced(raced.result)
    assert found(device={**gpu, "driver": 13010}) is None
    assert found(of=setup._replace(max_batch=4)) is None
    assert found(of=setup._replace(settings={"threads": 2})) is None
    parity = setup.manifest.parity.model_copy(update={"fill_levels": 1.0})  # a bar that can rule out bf16
    assert found(of=setup._replace(manifest=setup.manifest.model_copy(update={"parity": parity}))) is None
    (setup.directory / "program.pt2").touch()
    assert found() is None


def test_a_race_that_fails_leaves_the_fixed_order_and_says_so(track, setup, tmp_path):
    full = track.racer("first", 1.0, error=EngineOutOfMemory("two engines are too many"), from_batch=3)
    with capture_logs() as logs:
        assert find_fastest([full, track.racer("second", 5.0)], setup, dict, tmp_path, 1.0) is None
    assert logs[-1]["event"] == "race failed, the fixed order holds"
    assert "two engines are too many" in logs[-1]["reason"]
    assert find_fastest([], setup, dict, tmp_path, 0.0) is None, "nothing is remembered"


def test_a_device_whose_facts_cannot_be_read_leaves_the_fixed_order(track, setup, tmp_path):
    def broken() -> dict[str, object]:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "a name")

    assert find_fastest([track.racer("first", 10.0)], setup, broken, tmp_path, 1.0) is None
    assert track.batches == 0


def test_a_lost_device_ends_the_process(track, setup, tmp_path):
    lost = track.racer("first", 1.0, error=DeviceLost("illegal address"))
    with pytest.raises(DeviceLost):
        find_fastest([lost, track.racer("second", 5.0)], setup, dict, tmp_path, 1.0)


def test_a_damaged_result_counts_as_none(track, setup, tmp_path):
    racers = [track.racer("first", 10.0), track.racer("second", 5.0)]
    find_fastest(racers, setup, dict, tmp_path, 0.01)
    (path,) = tmp_path.glob("*.json")
    path.write_text("{")
    assert find_fastest(racers, setup, dict, tmp_path, 0.0) is None


def test_a_result_that_names_an_unknown_engine_counts_as_none(track, setup, tmp_path):
    racers = [track.racer("first", 10.0), track.racer("second", 5.0)]
    find_fastest(racers, setup, dict, tmp_path, 0.01)
    (path,) = tmp_path.glob("*.json")
    path.write_text(path.read_text().replace('"second"', '"removed"'))
    assert find_fastest(racers, setup, dict, tmp_path, 0.0) is None
    assert find_fastest(racers, setup, dict, tmp_path, 0.01).result.order != ("first", "removed")


def test_the_shapes_are_a_lone_sample_and_a_full_batch_of_small_tiles_and_a_lone_large_one(directory):
    manifest = read_manifest(directory)
    tiles = list(manifest.size.tile_sizes())
    shapes = Setup(directory, manifest, 4, {}).shapes()
    assert shapes[:2] == [BatchShape(1, *min(tiles)), BatchShape(4, *min(tiles))]
    assert shapes[-1][1:3] == max(tiles)


def test_the_processor_is_named(tmp_path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: EPYC\n")
    assert processor_facts(tmp_path / "cpuinfo")["processor"] == "EPYC"
    assert processor_facts(tmp_path / "none")["processor"] == ""


def test_only_cores_that_this_process_may_use_count():
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert processor_facts()["cores"] == 1
    finally:
        os.sched_setaffinity(0, allowed)
