"""The worker on a device with lanes: waiting samples go to the free lane."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from engines.repository.versions import ServedModel
from service.batching.batcher import Batcher, BatchPolicy
from service.batching.worker import DeviceWorker
from service.core.batch_rows import ComputedSample
from service.core.errors import InferenceFailed
from service.devices.contract import SerialDevice
from service.devices.cpu import CpuDevice
from service.devices.cpu_lanes import LaneDevice
from tests.fakes.lanes import FakeLaneEngine
from tests.service.devices.lanes import samples
from tests.serving.waiting import until


def slow_clock() -> float:
    """Return the time × 1000: engines seem so slow that each batch has one sample."""
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

    def submit(self, *values: int) -> list[asyncio.Task[ComputedSample]]:
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


async def test_a_finished_lane_takes_the_next_batch_while_the_other_computes(bench: Bench) -> None:
    tasks = bench.submit(*range(5))
    await asyncio.sleep(0)
    bench.worker.start()
    await bench.begun(0)
    for done in (1, 2, 3, 4):  # on the second lane, while the first lane still computes sample 0
        await bench.begun(1)
        await asyncio.to_thread(bench.engine.compute, 1)
        assert (await tasks[done]).tile[0, 0, 0] == 255 - done
    await asyncio.to_thread(bench.engine.compute, 0)
    assert (await tasks[0]).tile[0, 0, 0] == 255
    assert bench.sizes == [1] * 5
    bench.end()


async def test_a_sample_that_arrives_while_a_lane_is_free_starts_at_once(bench: Bench) -> None:
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


async def test_a_batch_that_fails_without_a_message_is_still_answered(bench: Bench) -> None:
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

    def compute_both() -> None:
        for lane in (1, 0):
            bench.engine.compute(lane)

    later = threading.Timer(0.05, compute_both)
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
    await bench.begun(1)
    bench.batcher.close()  # waiting samples are answered, and an abandoned lane gets none
    bench.engine.break_down(0)
    bench.engine.break_down(1)
    await asyncio.gather(*tasks, return_exceptions=True)
    bench.end()


async def test_an_abandoned_worker_takes_no_more_batches_and_ends_with_its_lanes(bench: Bench) -> None:
    tasks = bench.submit(1, 2)
    await asyncio.sleep(0)
    bench.worker.start()
    await bench.begun(1)
    left = bench.worker.abandon()
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
