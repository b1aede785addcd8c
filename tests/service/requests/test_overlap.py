"""The worker with batches in flight together: in order, never too many, and everyone is answered whatever happens."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from structlog.testing import capture_logs

from engines.base import BatchShape, Engine
from engines.cuda.api import Cuda
from engines.errors import EngineDead, EngineFailed, EngineOutOfMemory
from engines.fake import FakeEngine
from engines.manifest import Manifest
from engines.repository.versions import ServedModel
from service.batching.batcher import Batcher, BatchPolicy, Entry
from service.batching.supervisor import Supervisor
from service.batching.worker import DeviceWorker
from service.core.errors import InferenceFailed, NotReady
from service.core.pictures import Size
from service.core.samples import Computed, Sample
from service.devices.contract import Device, RoutingDevice, SerialDevice, Tiles
from service.devices.cpu import CpuDevice
from service.devices.cpu_lanes import LaneDevice
from service.devices.gpu import GpuDevice
from service.devices.gpu_cvcuda import GpuPixels
from tests.fakes.gpu import FakeCvCuda, FakeStreamEngine, RacingRuntime
from tests.serving.waiting import until

Answers = Coroutine[Any, Any, Computed]


@dataclass(eq=False)
class StepTicket:
    values: list[int]
    finished: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None
    share: float = 1.0

    @property
    def done(self) -> bool:
        return self.finished.is_set()


@dataclass
class StepDevice(Device):
    """A device whose batches are finished by the test."""

    depth: int = 2
    launched: list[StepTicket] = field(default_factory=list)
    refuse: list[Exception] = field(default_factory=list)
    closed: threading.Event = field(default_factory=threading.Event)
    finish_at_once: bool = False

    def launch(self, engine: Engine, samples: Sequence[Sample]) -> StepTicket:
        if self.refuse:
            raise self.refuse.pop(0)
        self.launched.append(StepTicket([int(sample.arrays["image"][0, 0, 0]) for sample in samples]))
        if self.finish_at_once:
            self.launched[-1].finished.set()
        return self.launched[-1]

    def collect(self, ticket: Any) -> Tiles:
        ticket.finished.wait()
        if ticket.error is not None:
            raise ticket.error
        return [np.full((1, 1, 3), value, np.uint8) for value in ticket.values]

    def close(self) -> None:
        self.closed.set()


@dataclass
class Nobody:
    batches: list[int] = field(default_factory=list)

    def batch_done(self, model: str, device: str, size: int, infer_s: float) -> None:
        self.batches.append(size)


@dataclass
class Bench:
    batcher: Batcher
    device: StepDevice
    model: ServedModel
    observed: Nobody
    supervisor: Supervisor
    reloaded: list[Entry]

    def submit(self, value: int) -> asyncio.Task[Computed]:
        sample = Sample(Size(64, 64), {"image": np.full((64, 64, 3), value, np.uint8)})
        return asyncio.create_task(self.batcher.submit(sample, self.model, 1e12))

    async def launch(self, value: int) -> asyncio.Task[Computed]:
        """Submit one and wait until it is on its way."""
        before = len(self.device.launched)
        task = self.submit(value)
        await until(lambda: len(self.device.launched) > before)
        return task


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Rendering a traceback takes longer than these tests may."""
    with capture_logs():
        yield


@pytest.fixture
def bench(fake_manifest: Callable[..., Manifest]) -> Any:
    manifest = fake_manifest("facades", "translate")
    batcher, observed, reloaded = Batcher(BatchPolicy(8), time.monotonic), Nobody(), []
    devices: list[StepDevice] = []

    def start() -> DeviceWorker:
        devices.append(StepDevice())
        worker = DeviceWorker(batcher, devices[-1], observed, time.monotonic)
        worker.start()
        return worker

    supervisor = Supervisor(start, reloaded.append, time.monotonic, hang_timeout_s=0.2)
    yield Bench(batcher, devices[0], ServedModel(manifest, FakeEngine(manifest)), observed, supervisor, reloaded)
    batcher.close()
    for device in devices:
        for ticket in device.launched:
            ticket.finished.set()
    supervisor.worker.join(5)


async def test_the_next_batch_is_launched_while_one_computes_and_no_more_than_the_device_takes(bench: Bench) -> None:
    first, second = await bench.launch(1), await bench.launch(2)
    third = bench.submit(3)
    await asyncio.sleep(0.03)
    assert [ticket.values for ticket in bench.device.launched] == [[1], [2]]
    bench.device.launched[0].finished.set()
    await until(lambda: len(bench.device.launched) == 3)
    assert int((await first).tile[0, 0, 0]) == 1
    assert not second.done()
    for ticket in bench.device.launched:
        ticket.finished.set()
    assert [int((await task).tile[0, 0, 0]) for task in (second, third)] == [2, 3]
    assert bench.observed.batches == [1, 1, 1]


async def test_a_batch_that_is_done_is_answered_though_nobody_else_comes(bench: Bench) -> None:
    task = await bench.launch(1)
    await asyncio.sleep(0.01)
    bench.device.launched[0].finished.set()
    answer = await asyncio.wait_for(task, 5)
    assert answer.infer_s >= 0.01
    assert answer.queue_s >= 0


async def test_a_batch_that_waited_behind_another_computes_from_then_on(bench: Bench) -> None:
    first, second = await bench.launch(1), await bench.launch(2)
    await asyncio.sleep(0.1)
    bench.device.launched[0].finished.set()
    await first
    bench.device.launched[1].finished.set()
    assert (await second).infer_s < 0.1 <= (await second).queue_s


async def test_a_batch_that_fails_takes_no_other_with_it(bench: Bench) -> None:
    first = await bench.launch(1)
    bench.device.refuse.append(EngineFailed("no profile"))
    with pytest.raises(InferenceFailed, match="no profile"):
        await bench.submit(2)
    third = await bench.launch(3)
    bench.device.launched[0].error = EngineFailed("bad output")
    for ticket in bench.device.launched:
        ticket.finished.set()
    with pytest.raises(InferenceFailed, match="bad output"):
        await first
    assert int((await third).tile[0, 0, 0]) == 3


async def test_when_the_engine_dies_every_batch_in_flight_is_answered_and_the_engine_loaded_once(bench: Bench) -> None:
    tasks = [await bench.launch(1), await bench.launch(2), bench.submit(3)]
    await asyncio.sleep(0.01)
    bench.device.launched[0].error = EngineDead("context lost")
    bench.device.launched[0].finished.set()
    await asyncio.to_thread(bench.supervisor.worker.join, 10)
    assert bench.device.closed.is_set()
    assert bench.supervisor.check()
    for task in tasks[:2]:
        with pytest.raises(NotReady, match="dead") as lost:
            await task
        assert lost.value.code == "worker_lost"
    assert [entry.model.engine for entry in bench.reloaded] == [bench.model.engine]
    new: Any = bench.supervisor.worker.device
    await until(lambda: len(new.launched) == 1)
    new.launched[0].finished.set()
    assert int((await tasks[2]).tile[0, 0, 0]) == 3


async def test_when_the_device_hangs_every_batch_in_flight_is_answered(bench: Bench) -> None:
    tasks = [await bench.launch(1), await bench.launch(2)]
    hung = bench.supervisor.worker
    await until(lambda: hung.state(time.monotonic(), 0.2) == "hung")
    assert bench.supervisor.check()
    for task in tasks:
        with pytest.raises(NotReady, match="hung"):
            await task
    for ticket in bench.device.launched:
        ticket.finished.set()
    await asyncio.to_thread(hung.join, 5)
    assert bench.device.closed.is_set()


async def test_a_device_that_makes_progress_does_not_hang_however_long_the_last_batch_waits(bench: Bench) -> None:
    worker = bench.supervisor.worker
    tasks = [await bench.launch(value) for value in (1, 2)]
    for index in range(4):
        await asyncio.sleep(0.12)
        bench.device.launched[index].finished.set()
        await tasks[index]
        tasks.append(await bench.launch(3 + index))
        assert worker.state(time.monotonic(), 0.2) == "busy"


async def test_a_batch_that_an_abandoned_worker_takes_is_answered_all_the_same(bench: Bench) -> None:
    bench.supervisor.worker.give_up()
    with pytest.raises(NotReady, match="replaced"):
        await bench.submit(1)
    await until(bench.device.closed.is_set)


async def test_closing_answers_what_is_in_flight_and_ends_the_thread(bench: Bench) -> None:
    tasks = [await bench.launch(1), await bench.launch(2)]
    bench.batcher.close()
    for ticket in bench.device.launched:
        ticket.finished.set()
    assert [int((await task).tile[0, 0, 0]) for task in tasks] == [1, 2]
    await asyncio.to_thread(bench.supervisor.worker.join, 5)
    assert bench.device.closed.is_set()


async def test_closing_while_one_computes_waits_for_it(bench: Bench) -> None:
    task = await bench.launch(1)
    bench.batcher.close()
    await asyncio.sleep(0.02)
    bench.device.launched[0].finished.set()
    assert int((await task).tile[0, 0, 0]) == 1


async def test_batches_in_flight_that_find_no_memory_are_halved_once_and_all_answered(
    fake_manifest: Callable[..., Manifest],
) -> None:
    manifest = fake_manifest("facades", "translate")
    model, batcher, device = (
        ServedModel(manifest, FakeEngine(manifest)),
        Batcher(BatchPolicy(2), time.monotonic),
        StepDevice(),
    )
    samples = [Sample(Size(64, 64), {"image": np.full((64, 64, 3), value, np.uint8)}) for value in range(4)]
    tasks = [asyncio.create_task(batcher.submit(sample, model, 1e12)) for sample in samples]
    await asyncio.sleep(0)
    worker = DeviceWorker(batcher, device, Nobody(), time.monotonic)
    worker.start()
    await until(lambda: len(device.launched) == 2)
    device.finish_at_once = True
    for ticket in reversed(device.launched):
        ticket.error = EngineOutOfMemory("full")
        ticket.finished.set()
    assert [int((await task).tile[0, 0, 0]) for task in tasks] == [0, 1, 2, 3]
    assert [ticket.values for ticket in device.launched] == [[0, 1], [2, 3], [2], [3], [0], [1]]
    batcher.close()
    worker.join(5)


@dataclass
class GpuBench:
    """The real worker and device on a GPU in host memory."""

    batcher: Batcher
    worker: DeviceWorker
    runtime: RacingRuntime
    engine: FakeStreamEngine
    observed: Nobody

    def submit(self, image: np.ndarray) -> asyncio.Task[Computed]:
        sample = Sample(Size(64, 64), {"image": image})
        return asyncio.create_task(self.batcher.submit(sample, ServedModel(self.engine.manifest, self.engine), 1e12))


@pytest.fixture
def gpu_bench(fake_manifest: Callable[..., Manifest]) -> Any:
    runtime = RacingRuntime(1)
    cuda, observed = Cuda(runtime), Nobody()
    engine = FakeStreamEngine(fake_manifest("facades", "translate"), cuda, BatchShape(8, 64, 64))
    batcher = Batcher(BatchPolicy(8), time.monotonic)
    gpu = GpuDevice(cuda, GpuPixels(FakeCvCuda(runtime)))
    device = RoutingDevice(
        SerialDevice(CpuDevice()), lambda _: gpu, lambda alone: LaneDevice(alone, batcher.wake, time.monotonic)
    )
    worker = DeviceWorker(batcher, device, observed, time.monotonic)
    yield GpuBench(batcher, worker, runtime, engine, observed)
    batcher.close()
    worker.join(5)


def random_images(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (64, 64, 3), np.uint8) for _ in range(count)]


async def test_everyone_gets_the_tile_of_the_own_picture_from_an_overlapping_gpu(gpu_bench: GpuBench) -> None:
    images = random_images(60)
    gpu_bench.worker.start()
    tasks = []
    for image in images:
        tasks.append(gpu_bench.submit(image))
        await asyncio.sleep(0.001)
    for image, task in zip(images, tasks, strict=True):
        np.testing.assert_array_equal((await task).tile, 255 - image)


@pytest.mark.parametrize("fits", [1, 2, 5])
async def test_a_batch_that_does_not_fit_the_memory_is_halved_until_it_does(gpu_bench: GpuBench, fits: int) -> None:
    gpu_bench.engine.largest_batch = fits
    images = random_images(19)
    tasks = [gpu_bench.submit(image) for image in images]
    await asyncio.sleep(0)
    gpu_bench.worker.start()
    for image, task in zip(images, tasks, strict=True):
        np.testing.assert_array_equal((await task).tile, 255 - image)
    assert gpu_bench.observed.batches == [8, 8, 3]


@pytest.mark.parametrize("error", [EngineOutOfMemory("full"), EngineFailed("broken"), RuntimeError("a bug")])
async def test_a_half_that_fails_is_answered_and_the_other_computed(gpu_bench: GpuBench, error: Exception) -> None:
    images = random_images(2)
    gpu_bench.engine.refuse = [EngineOutOfMemory("full"), error]
    tasks = [gpu_bench.submit(image) for image in images]
    await asyncio.sleep(0)
    gpu_bench.worker.start()
    with pytest.raises(InferenceFailed, match=str(error)):
        await tasks[0]
    np.testing.assert_array_equal((await tasks[1]).tile, 255 - images[1])


async def test_death_of_the_engine_in_a_half_ends_the_worker(gpu_bench: GpuBench) -> None:
    gpu_bench.engine.refuse = [EngineOutOfMemory("full"), EngineDead("lost")]
    tasks = [gpu_bench.submit(image) for image in random_images(2)]
    await asyncio.sleep(0)
    gpu_bench.worker.start()
    await asyncio.to_thread(gpu_bench.worker.join, 5)
    assert len(gpu_bench.worker.give_up()) == 2
    for task in tasks:
        task.cancel()


async def test_a_device_that_cannot_free_its_memory_lets_the_thread_end(bench: Bench) -> None:
    def fail() -> None:
        raise EngineDead("the context is lost")

    bench.device.close = fail  # type: ignore[method-assign]
    bench.batcher.close()
    await asyncio.to_thread(bench.supervisor.worker.join, 5)
    assert bench.supervisor.worker.state(0.0, 1) == "dead"
