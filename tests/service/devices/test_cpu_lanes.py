"""Batches on lanes: each goes its own way, and whoever is alone has the whole device."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from engines.errors import EngineFailed
from engines.fake import FakeEngine
from engines.manifest import Manifest
from engines.repository.versions import ServedModel
from service.batching.batcher import Batcher, BatchPolicy
from service.batching.worker import DeviceWorker
from service.core.errors import InferenceFailed
from service.core.items import Computed, Sample, Size
from service.devices.contract import SerialDevice
from service.devices.cpu import CpuDevice
from service.devices.cpu_lanes import LaneDevice
from tests.fakes.clock import Clock
from tests.fakes.lanes import FakeLaneEngine
from tests.serving.waiting import until


@pytest.fixture
def engine(fake_manifest: Callable[..., Manifest]) -> FakeLaneEngine:
    return FakeLaneEngine(fake_manifest("facades", "translate"))


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def clock() -> Clock:
    return Clock(0.0)


@pytest.fixture
def device(woken: list[str], clock: Clock) -> LaneDevice:
    return LaneDevice(SerialDevice(CpuDevice()), lambda: woken.append("woken"), clock)


def samples(*values: int) -> list[Sample]:
    return [Sample(Size(64, 64), {"image": np.full((64, 64, 3), value, np.uint8)}) for value in values]


ONE = samples(0)[0]


def teach(device: LaneDevice, engine: FakeLaneEngine, clock: Clock, row_s: float) -> None:
    """A batch of two took that long for each."""
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
    with pytest.raises(EngineFailed, match="all 2 lanes are taken"):
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


def slow_clock() -> float:
    """Makes the engine so slow that a batch is one sample."""
    return 1e3 * time.monotonic()


class Bench:
    """A worker on lanes."""

    def __init__(self, engine: FakeLaneEngine) -> None:
        self.engine, self.batcher, self.sizes = engine, Batcher(BatchPolicy(8), time.monotonic), list[int]()
        self.device = LaneDevice(SerialDevice(CpuDevice()), self.batcher.wake, slow_clock)
        self.worker = DeviceWorker(self.batcher, self.device, self, time.monotonic)

    def batch_done(self, model: str, device: str, size: int, device_s: float) -> None:
        assert device_s >= 0
        self.sizes.append(size)

    def submit(self, *values: int) -> list[asyncio.Task[Computed]]:
        model = ServedModel(self.engine.manifest, self.engine)
        return [asyncio.create_task(self.batcher.submit(sample, model, 1e12)) for sample in samples(*values)]

    def end(self) -> None:
        self.batcher.close()
        self.worker.join(5)

    async def begun(self, lane: int) -> None:
        await until(lambda: lane in self.engine.begun)


@pytest.fixture
def bench(engine: FakeLaneEngine) -> Bench:
    return Bench(engine)


async def test_a_lane_that_is_done_goes_on_with_who_waits_while_the_other_computes(bench: Bench) -> None:
    tasks = bench.submit(*range(5))
    await asyncio.sleep(0)
    bench.worker.start()
    await bench.begun(0)
    for done in (1, 2, 3, 4):  # those on the second lane, while the first of all still computes
        await bench.begun(1)
        await asyncio.to_thread(bench.engine.compute, 1)
        assert (await tasks[done]).tile[0, 0, 0] == 255 - done
    await asyncio.to_thread(bench.engine.compute, 0)
    assert (await tasks[0]).tile[0, 0, 0] == 255
    assert bench.sizes == [1] * 5
    bench.end()


async def test_who_comes_while_one_lane_is_free_is_begun_at_once(bench: Bench) -> None:
    first = bench.submit(1, 2)
    await asyncio.sleep(0)
    bench.worker.start()
    await bench.begun(0)
    await bench.begun(1)
    await asyncio.to_thread(bench.engine.compute, 1)
    await first[1]
    later = bench.submit(4)
    await bench.begun(1)
    await asyncio.to_thread(bench.engine.compute, 1)
    assert (await later[0]).tile[0, 0, 0] == 251
    await asyncio.to_thread(bench.engine.compute, 0)
    assert (await first[0]).tile[0, 0, 0] == 254
    bench.end()


async def test_a_batch_that_fails_without_a_word_is_answered_all_the_same(bench: Bench) -> None:
    tasks = bench.submit(1, 2)
    await asyncio.sleep(0)
    bench.worker.start()
    await bench.begun(1)
    bench.engine.break_down(0)
    with pytest.raises(InferenceFailed, match="registers"):
        await tasks[0]
    await asyncio.to_thread(bench.engine.compute, 1)
    assert (await tasks[1]).batch_size == 1
    bench.end()


async def test_what_computes_when_the_queue_is_closed_is_answered(bench: Bench) -> None:
    tasks = bench.submit(1, 2)
    await asyncio.sleep(0)
    bench.worker.start()
    await bench.begun(1)
    bench.batcher.close()
    later = threading.Timer(0.05, lambda: [bench.engine.compute(lane) for lane in (1, 0)])
    later.start()
    assert len(await asyncio.gather(*tasks)) == 2
    bench.end()
    assert bench.worker.state(time.monotonic(), 60) == "dead"


async def test_a_lane_that_hangs_is_noticed_though_the_other_goes_on(bench: Bench) -> None:
    tasks = bench.submit(1, 2)
    await asyncio.sleep(0)
    bench.worker.start()
    await bench.begun(0)
    begun_at = time.monotonic()
    while bench.worker.state(time.monotonic(), 0.2) == "busy":
        assert time.monotonic() < begun_at + 10
        await bench.begun(1)
        await asyncio.to_thread(bench.engine.compute, 1)
        tasks += bench.submit(3)
        await asyncio.sleep(0.01)
    assert bench.worker.state(time.monotonic(), 0.2) == "hung"
    assert bench.worker.state(time.monotonic(), 60) == "busy"
    bench.engine.break_down(0)
    await bench.begun(1)
    bench.engine.break_down(1)
    await asyncio.gather(*tasks, return_exceptions=True)
    bench.end()


async def test_a_worker_that_was_given_up_takes_nobody_more_and_ends_when_its_lanes_do(bench: Bench) -> None:
    tasks = bench.submit(1, 2)
    await asyncio.sleep(0)
    bench.worker.start()
    await bench.begun(1)
    left = bench.worker.give_up()
    assert len(left) == 2
    await asyncio.to_thread(bench.engine.compute, 1)
    later = bench.submit(3)
    await asyncio.sleep(0.1)
    assert len(bench.batcher) == 1
    assert bench.worker.state(time.monotonic(), 60) == "busy", "its engine would be closed under the first lane"
    await asyncio.to_thread(bench.engine.compute, 0)
    bench.worker.join(5)
    assert bench.worker.state(time.monotonic(), 60) == "dead"
    bench.batcher.close()
    for task in (*tasks, *later):
        task.cancel()
