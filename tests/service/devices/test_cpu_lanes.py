"""Batches on lanes: each lane runs its own batches, and a single batch gets the whole device."""

from __future__ import annotations

import numpy as np
import pytest

from engines.errors import EngineFailed
from engines.fake import FakeEngine
from service.core.batch_rows import Sample
from service.core.pictures import Size
from service.devices.contract import PerEngineDevice, SerialDevice
from service.devices.cpu import CpuDevice
from service.devices.cpu_lanes import LaneDevice
from tests.fakes.clock import Clock
from tests.fakes.lanes import FakeLaneEngine
from tests.service.devices.lanes import samples

ONE = samples(0)[0]


def teach(device: LaneDevice, engine: FakeLaneEngine, clock: Clock, row_s: float) -> None:
    """Run a batch of two that takes `row_s` for each row, from which the device learns."""
    ticket = device.launch(engine, samples(1, 2))
    clock.now += 2 * row_s
    engine.compute(0)
    device.collect(ticket)


@pytest.mark.parametrize(
    ("row_s", "taken", "rows"),
    [
        (0.1, 0, {1: 1, 50: 1}),
        (0.1, 1, {50: 1}),
        (0.1, 2, {50: 0}),
        (0.005, 0, {1: 1, 2: 1, 3: 2, 50: 2}),
        (0.001, 0, {3: 2, 50: 4}),
        (0.001, 1, {3: 3, 50: 4}),
        (0.0, 0, {50: 4}),
    ],
)
def test_a_batch_takes_ten_milliseconds_or_half_of_the_most_and_leaves_the_other_lanes_their_share(
    device: LaneDevice, engine: FakeLaneEngine, clock: Clock, row_s: float, taken: int, rows: dict[int, int]
) -> None:
    teach(device, engine, clock, row_s)
    for _ in range(taken):
        device.launch(engine, samples(1, 2))
    assert {waiting: device.batch_rows(engine, ONE, 8, waiting) for waiting in rows} == rows


def test_each_size_of_tiles_has_a_speed_of_its_own(device: LaneDevice, engine: FakeLaneEngine, clock: Clock) -> None:
    teach(device, engine, clock, 0.001)
    image = np.zeros((128, 64, 3), np.uint8)
    assert device.batch_rows(engine, Sample(Size(64, 128), {"image": image}), 8, 50) == 1


def test_an_engine_without_lanes_waits_until_the_lanes_are_free(
    device: LaneDevice, engine: FakeLaneEngine, clock: Clock
) -> None:
    whole = FakeEngine(engine.manifest)
    assert device.batch_rows(whole, ONE, 8, 50) == 8
    device.launch(engine, samples(1, 2))
    assert device.batch_rows(whole, ONE, 8, 50) == 0


def test_an_engine_of_unknown_speed_computes_one_sample_on_each_lane(
    device: LaneDevice, engine: FakeLaneEngine
) -> None:
    assert device.batch_rows(engine, ONE, 8, 50) == 1


def test_a_batch_that_was_held_up_once_does_not_change_what_is_known_much(
    device: LaneDevice, engine: FakeLaneEngine, clock: Clock
) -> None:
    teach(device, engine, clock, 0.001)
    teach(device, engine, clock, 0.0062)
    assert device.batch_rows(engine, ONE, 20, 50) == 5


def test_a_batch_on_a_lane_is_done_when_the_engine_says_so(
    device: LaneDevice, engine: FakeLaneEngine, woken: list[str]
) -> None:
    first, second = device.launch(engine, samples(10, 20)), device.launch(engine, samples(30))
    assert not first.done
    assert not second.done
    engine.compute(1)
    assert (first.done, second.done, woken) == (False, True, ["woken"])
    assert [int(tile[0, 0, 0]) for tile in device.collect(second) if tile is not None] == [225]
    third = device.launch(engine, samples(40))
    engine.compute(0)
    engine.compute(1)
    assert [int(tile[0, 0, 0]) for tile in device.collect(first) if tile is not None] == [245, 235]
    assert [int(tile[0, 0, 0]) for tile in device.collect(third) if tile is not None] == [215]
    device.close()


def test_one_sample_alone_has_the_whole_device(device: LaneDevice, engine: FakeLaneEngine) -> None:
    assert device.batch_rows(engine, ONE, 8, 1) == 1
    ticket = device.launch(engine, samples(10))
    assert ticket.done
    assert engine.begun == {}
    (tile,) = device.collect(ticket)
    assert tile is not None
    assert tile[0, 0, 0] == 245


def test_the_first_sample_of_a_server_has_the_whole_device_too(engine: FakeLaneEngine, clock: Clock) -> None:
    """The first batch is planned before the lanes are open; on a lane it would be rounded as no repetition is."""
    lanes = PerEngineDevice(
        SerialDevice(CpuDevice()), lambda _engine: None, lambda alone: LaneDevice(alone, lambda: None, clock)
    )
    for _ in range(2):
        assert lanes.batch_rows(engine, ONE, 8, 1) > 0
        ticket = lanes.launch(engine, samples(10))
        assert (ticket.done, engine.begun) == (True, {})
        lanes.collect(ticket)


def test_one_sample_alone_goes_on_a_lane_where_another_device_would_wait_for_it(
    device: LaneDevice, engine: FakeLaneEngine
) -> None:
    device.worker_is_shared = True
    assert device.batch_rows(engine, ONE, 8, 1) == 1
    ticket = device.launch(engine, samples(10))
    assert not ticket.done
    engine.compute(0)
    (tile,) = device.collect(ticket)
    assert tile is not None
    assert tile[0, 0, 0] == 245


def test_more_batches_than_lanes_are_refused(device: LaneDevice, engine: FakeLaneEngine) -> None:
    for _ in range(2):
        device.launch(engine, samples(1, 2))
    with pytest.raises(EngineFailed, match="all 2 lanes are in use"):
        device.launch(engine, samples(1))


def test_a_lane_is_free_again_after_a_batch_that_failed(device: LaneDevice, engine: FakeLaneEngine) -> None:
    engine.refuse.append(EngineFailed("not today"))
    with pytest.raises(EngineFailed, match="not today"):
        device.launch(engine, samples(1, 2))
    broken = device.launch(engine, samples(1, 2))
    engine.break_down(0)
    with pytest.raises(EngineFailed, match="registers"):
        device.collect(broken)
    assert device.batch_rows(engine, ONE, 8, 50) == 1
    again = device.launch(engine, samples(1, 2))
    engine.compute(0)
    assert len(device.collect(again)) == 2
