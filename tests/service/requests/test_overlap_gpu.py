"""Overlapping batches on the GPU device, on a fake CUDA."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from engines.base import BatchShape
from engines.cuda.api import Cuda
from engines.errors import EngineDead, EngineFailed, EngineOutOfMemory
from engines.manifest import Manifest
from engines.repository.versions import ServedModel
from service.batching.batcher import Batcher, BatchPolicy
from service.batching.worker import DeviceWorker
from service.core.batch_rows import ComputedSample, Sample
from service.core.errors import InferenceFailed
from service.core.pictures import Size
from service.devices.contract import PerEngineDevice, SerialDevice
from service.devices.cpu import CpuDevice
from service.devices.cpu_lanes import LaneDevice
from service.devices.gpu import GpuDevice
from service.devices.gpu_cvcuda import GpuPixels
from tests.fakes.gpu import FakeCvCuda, FakeStreamEngine, RacingRuntime
from tests.service.requests.overlap import Bench, Nobody

pytestmark = pytest.mark.usefixtures("no_tracebacks")


@dataclass
class GpuBench:
    """The real worker and GPU device on a fake GPU in host memory."""

    batcher: Batcher
    worker: DeviceWorker
    runtime: RacingRuntime
    engine: FakeStreamEngine
    observed: Nobody

    def submit(self, image: np.ndarray) -> asyncio.Task[ComputedSample]:
        sample = Sample(Size(64, 64), {"image": image})
        return asyncio.create_task(self.batcher.submit(sample, ServedModel(self.engine.manifest, self.engine), 1e12))


@pytest.fixture
def gpu_bench(fake_manifest: Callable[..., Manifest]) -> Any:
    runtime = RacingRuntime(1)
    cuda, observed = Cuda(runtime), Nobody()
    engine = FakeStreamEngine(fake_manifest("facades", "translate"), cuda, BatchShape(8, 64, 64))
    batcher = Batcher(BatchPolicy(8), time.monotonic)
    gpu = GpuDevice(cuda, GpuPixels(FakeCvCuda(runtime)))
    device = PerEngineDevice(
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
    assert len(gpu_bench.worker.abandon()) == 2
    for task in tasks:
        task.cancel()


async def test_a_device_that_cannot_free_its_memory_lets_the_thread_end(bench: Bench) -> None:
    def fail() -> None:
        raise EngineDead("the context is lost")

    bench.device.close = fail  # type: ignore[method-assign]
    bench.batcher.close()
    await asyncio.to_thread(bench.supervisor.worker.join, 5)
    assert bench.supervisor.worker.state(0.0, 1) == "dead"
