"""Batches go to the device for their engine's kind, and engines of both kinds are served at the same time."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from engines.base import BatchShape, Engine
from engines.cuda.api import Cuda
from engines.errors import EngineUnavailable
from engines.fake import FakeEngine
from engines.manifest import Manifest
from engines.repository.versions import ServedModel
from service.batching.batcher import Batcher, BatchPolicy
from service.batching.worker import DeviceWorker
from service.core.batch_rows import ComputedSample, Sample
from service.core.pictures import Size
from service.devices.contract import Device, PerEngineDevice, SerialDevice
from service.devices.cpu import CpuDevice
from service.devices.cpu_lanes import LaneDevice
from service.devices.gpu import GpuDevice, open_gpu_device
from service.devices.gpu_cvcuda import GpuPixels
from tests.fakes.captured_logs import capture_logs
from tests.fakes.gpu import FakeCvCuda, FakeStreamEngine, RacingRuntime
from tests.fakes.lanes import FakeLaneEngine
from tests.serving.waiting import until


@pytest.fixture
def samples() -> list[Sample]:
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    return [Sample(Size(64, 64), {"image": image})]


@pytest.fixture
def manifest(fake_manifest: Callable[..., Manifest]) -> Manifest:
    return fake_manifest("facades", "translate")


def no_lanes(_alone: Device) -> Device:
    raise AssertionError("none of these engines has lanes")


def test_a_serial_device_computes_when_it_launches(manifest: Manifest, samples: list[Sample]) -> None:
    device, engine = SerialDevice(CpuDevice()), FakeEngine(manifest)
    ticket = device.launch(engine, samples)
    assert engine.batches == 1
    assert ticket.done
    np.testing.assert_array_equal(device.collect(ticket)[0], 255 - samples[0].arrays["image"])
    device.close()


def test_engines_on_streams_overlap_beside_engines_that_do_not(manifest: Manifest, samples: list[Sample]) -> None:
    runtime = RacingRuntime()
    cuda = Cuda(runtime)
    opened: list[Engine] = []

    def open_overlapping(engine: Engine) -> Device:
        opened.append(engine)
        return GpuDevice(cuda, GpuPixels(FakeCvCuda(runtime)))

    device = PerEngineDevice(SerialDevice(CpuDevice()), open_overlapping, no_lanes)
    assert device.depth == 1
    slow, fast = FakeEngine(manifest), FakeStreamEngine(manifest, cuda, BatchShape(1, 64, 64))
    tickets = [device.launch(engine, samples) for engine in (slow, fast, slow, fast)]
    assert device.depth == 3
    assert opened == [fast]
    for ticket in reversed(tickets):
        np.testing.assert_array_equal(device.collect(ticket)[0], 255 - samples[0].arrays["image"])
        assert ticket.done
    device.close()
    fast.close()
    assert runtime.alive == 0


def test_engines_with_lanes_share_one_device_beside_those_that_have_all_of_it(
    manifest: Manifest, samples: list[Sample]
) -> None:
    opened: list[LaneDevice] = []

    def open_lanes(alone: Device) -> Device:
        opened.append(LaneDevice(alone, lambda: None, lambda: 0.0))
        return opened[-1]

    device = PerEngineDevice(SerialDevice(CpuDevice()), no_streams, open_lanes)
    engines = FakeEngine(manifest), FakeLaneEngine(manifest, lanes=1), *(FakeLaneEngine(manifest) for _ in range(2))
    assert [device.batch_rows(engine, samples[0], 8, 8) for engine in engines] == [8, 8, 8, 8]
    assert opened == [], "the queue is locked meanwhile"
    tickets = [device.launch(engine, samples * 2) for engine in engines]
    assert len(opened) == 1
    assert [device.batch_rows(engine, samples[0], 8, 8) for engine in engines] == [0, 0, 0, 0]
    assert [ticket.done for ticket in tickets] == [True, True, False, False]
    for engine, ticket in zip(engines, tickets, strict=True):
        if isinstance(engine, FakeLaneEngine) and engine.lanes > 1:
            engine.compute(next(iter(engine.begun)))
        np.testing.assert_array_equal(device.collect(ticket)[1], 255 - samples[0].arrays["image"])
    assert [ticket.share for ticket in tickets] == [1, 1, 0.5, 0.5]
    assert [device.batch_rows(engine, samples[0], 8, 8) for engine in engines] == [8, 8, 4, 4]
    device.close()


class SharedDevice:
    """A worker with two open engines: one with lanes, and one on a GPU."""

    def __init__(self, manifest: Manifest) -> None:
        runtime = RacingRuntime()
        self.cuda, self.batcher = Cuda(runtime), Batcher(BatchPolicy(8), time.monotonic)
        self.lanes = FakeLaneEngine(manifest.model_copy(update={"name": "slow"}))
        self.gpu = FakeStreamEngine(manifest, self.cuda, BatchShape(8, 64, 64))
        self.device = PerEngineDevice(
            SerialDevice(CpuDevice()),
            lambda _: GpuDevice(self.cuda, GpuPixels(FakeCvCuda(runtime))),
            lambda alone: LaneDevice(alone, self.batcher.wake, lambda: 1e3 * time.monotonic()),
        )
        self.worker = DeviceWorker(self.batcher, self.device, self, time.monotonic)

    def batch_done(self, model: str, device: str, size: int, device_s: float) -> None:
        """Ignore the observation."""

    def submit(self, engine: Engine, sample: Sample) -> asyncio.Task[ComputedSample]:
        return asyncio.create_task(self.batcher.submit(sample, ServedModel(engine.manifest, engine), 1e12))

    async def open(self, sample: Sample) -> None:
        await self.submit(self.gpu, sample)
        first = self.submit(self.lanes, sample)
        await self.compute(0)
        await first

    async def compute(self, lane: int) -> None:
        await until(lambda: lane in self.lanes.begun)
        await asyncio.to_thread(self.lanes.compute, lane)


@pytest.fixture
def shared_device(manifest: Manifest) -> Iterator[SharedDevice]:
    made = SharedDevice(manifest)
    made.worker.start()
    yield made
    made.batcher.close()
    made.worker.join(5)


@pytest.mark.parametrize("on_lanes", [1, 2, 5])
async def test_a_gpu_is_not_kept_waiting_by_what_the_cpu_computes(
    shared_device: SharedDevice, samples: list[Sample], on_lanes: int
) -> None:
    await shared_device.open(samples[0])
    slow = [shared_device.submit(shared_device.lanes, samples[0]) for _ in range(on_lanes)]
    await until(lambda: len(shared_device.lanes.begun) == min(on_lanes, 2))
    for _ in range(8):  # more than the device has slots
        await asyncio.wait_for(shared_device.submit(shared_device.gpu, samples[0]), 5)
    assert not any(task.done() for task in slow)
    while not all(task.done() for task in slow):
        for lane in sorted(shared_device.lanes.begun.keys() - shared_device.lanes.finished.keys()):
            await asyncio.to_thread(shared_device.lanes.compute, lane)
        await asyncio.sleep(0.001)


def test_devices_of_a_gpu_and_the_cpu_have_their_depths_side_by_side_and_two_of_one_gpu_share_theirs(
    shared_device: SharedDevice, samples: list[Sample], manifest: Manifest
) -> None:
    class AnotherEngine(FakeStreamEngine):
        """A second class of engines for the same GPU."""

    another = AnotherEngine(manifest, shared_device.cuda, BatchShape(8, 64, 64))
    depths = []
    for engine in (shared_device.gpu, another, shared_device.lanes):
        shared_device.device.launch(engine, samples)
        depths.append(shared_device.device.depth)
    assert depths == [3, 3, 6]
    shared_device.lanes.compute(0)


def no_streams(_engine: Engine) -> Device | None:
    raise AssertionError("none of these engines is on a GPU")


@pytest.mark.parametrize("missing", [True, False])
def test_a_gpu_engine_that_cannot_overlap_is_served_all_the_same(
    manifest: Manifest, samples: list[Sample], missing: bool
) -> None:
    asked: list[Engine] = []

    def open_overlapping(engine: Engine) -> Device | None:
        asked.append(engine)
        if missing:
            raise EngineUnavailable("CV-CUDA does not load")
        return None

    device = PerEngineDevice(
        SerialDevice(CpuDevice()), open_overlapping, lambda alone: LaneDevice(alone, lambda: None, lambda: 0.0)
    )
    engine, on_lanes = (
        FakeStreamEngine(manifest, Cuda(RacingRuntime()), BatchShape(1, 64, 64)),
        FakeLaneEngine(manifest),
    )
    device.launch(on_lanes, samples * 2)
    with capture_logs() as logs:
        for _ in range(2):
            assert device.batch_rows(engine, samples[0], 8, 8) == 8, "nobody on a lane is in its way"
            assert device.collect(device.launch(engine, samples))[0] is not None
    assert device.depth == 3, "of the lanes"
    assert len(asked) == 1
    assert [line["reason"] for line in logs] == (["CV-CUDA does not load"] if missing else [])


def test_a_gpu_is_opened_for_engines_on_streams_alone(manifest: Manifest, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = RacingRuntime()
    monkeypatch.setitem(sys.modules, "cvcuda", FakeCvCuda(runtime))
    assert open_gpu_device(FakeEngine(manifest)) is None
    engine = FakeStreamEngine(manifest, Cuda(runtime), BatchShape(1, 64, 64))
    device = open_gpu_device(engine, open_cuda=lambda index: Cuda(runtime, index))
    assert isinstance(device, GpuDevice)
    device.close()
