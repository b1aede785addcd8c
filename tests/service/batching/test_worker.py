"""The device worker: it answers every request, whatever the engine does, and is replaced when it hangs or dies."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from engines.base import Feed
from engines.errors import DeviceLost, EngineDead, EngineFailed
from engines.fake import FakeEngine, Fault, Hang, NotANumber, Raise
from engines.manifest import Manifest
from engines.repository.versions import LeaseCounter, ServedModel
from service.batching.batcher import Batcher, BatchPolicy, Entry
from service.batching.supervisor import Supervisor
from service.batching.worker import DeviceWorker
from service.core.batch_rows import ComputedSample, Sample
from service.core.errors import InferenceFailed, NotReady
from service.core.pictures import Size
from service.devices.contract import SerialDevice
from service.devices.cpu import CpuDevice
from tests.serving.waiting import until


@dataclass
class Observed:
    batches: list[tuple[str, int]] = field(default_factory=list)
    threads: set[int] = field(default_factory=set)

    def batch_done(self, model: str, device: str, size: int, infer_s: float) -> None:
        assert infer_s >= 0
        self.batches.append((model, size))
        self.threads.add(threading.get_ident())


@dataclass
class Bench:
    """A worker with its queue, on a fake engine whose next fault can be chosen."""

    batcher: Batcher
    worker: DeviceWorker
    model: ServedModel
    engine: FakeEngine
    observed: Observed
    faults: list[Fault | None]

    async def submit(self, value: int = 100) -> ComputedSample:
        image = np.full((64, 64, 3), value, np.uint8)
        mask = np.zeros((64, 64), np.uint8)
        mask[:32] = 1
        return await self.batcher.submit(Sample(Size(64, 64), {"image": image, "mask": mask}), self.model, 1e12)


@pytest.fixture
def manifest(fake_manifest: Callable[..., Manifest]) -> Manifest:
    return fake_manifest("photos", "inpaint")


@pytest.fixture
def bench(manifest: Manifest) -> Iterator[Bench]:
    faults: list[Fault | None] = []

    def next_fault(_feed: Feed) -> Fault | None:
        return faults.pop(0) if faults else None

    batcher, observed = Batcher(BatchPolicy(8), time.monotonic), Observed()
    engine = FakeEngine(manifest, fault=next_fault)
    worker = DeviceWorker(batcher, SerialDevice(CpuDevice()), observed, time.monotonic)
    yield Bench(batcher, worker, ServedModel(manifest, engine), engine, observed, faults)
    batcher.close()


async def test_a_sample_becomes_a_tile_and_is_observed(bench: Bench) -> None:
    bench.worker.start()
    answer = await bench.submit(100)
    assert answer.tile.shape == (64, 64, 3)
    assert answer.tile.dtype == np.uint8
    assert (answer.tile == 100).all()
    assert answer.batch_size == 1
    assert bench.observed.batches == [("photos/1", 1)]


async def test_a_batch_is_counted_before_its_answers_arrive_but_not_by_the_thread_that_the_next_batch_waits_for(
    bench: Bench,
) -> None:
    bench.worker.start()
    for count in (1, 2, 3):
        await bench.submit()
        assert len(bench.observed.batches) == count
    assert bench.observed.threads == {threading.get_ident()}


async def test_samples_that_waited_are_computed_in_one_batch_each_with_its_own_tile(bench: Bench) -> None:
    tasks = [asyncio.create_task(bench.submit(value)) for value in (10, 20, 30)]
    await asyncio.sleep(0)
    bench.worker.start()
    answers = await asyncio.gather(*tasks)
    assert [int(answer.tile[0, 0, 0]) for answer in answers] == [10, 20, 30]
    assert bench.observed.batches == [("photos/1", 3)]


@pytest.mark.parametrize("error", [EngineFailed("out of memory"), RuntimeError("a bug in the runtime")])
async def test_an_engine_that_raises_fails_its_own_batch_only(bench: Bench, error: Exception) -> None:
    bench.faults.append(Raise(error))
    bench.worker.start()
    with pytest.raises(InferenceFailed, match=str(error)):
        await bench.submit()
    assert (await bench.submit()).batch_size == 1
    await until(lambda: bench.worker.state(time.monotonic(), 60) == "idle")


async def test_an_output_that_is_not_finite_is_an_error_and_no_picture(bench: Bench) -> None:
    bench.faults.append(NotANumber())
    bench.worker.start()
    with pytest.raises(InferenceFailed, match="NaN or infinite") as failure:
        await bench.submit()
    assert failure.value.code == "not_finite"


async def test_a_worker_ends_when_its_queue_is_closed(bench: Bench) -> None:
    bench.worker.start()
    bench.batcher.close()
    await asyncio.to_thread(bench.worker.join, 5)
    assert bench.worker.state(0.0, 60) == "dead"


def supervise(bench: Bench, reloaded: list[Entry], hang_timeout_s: float = 60.0) -> Supervisor:
    def start() -> DeviceWorker:
        worker = DeviceWorker(bench.batcher, SerialDevice(CpuDevice()), bench.observed, time.monotonic)
        worker.start()
        return worker

    def reload_engine(entry: Entry) -> None:
        reloaded.append(entry)
        bench.model = ServedModel(bench.model.manifest, FakeEngine(bench.model.manifest))

    return Supervisor(start, reload_engine, time.monotonic, hang_timeout_s)


async def test_a_worker_that_ended_after_closing_is_not_replaced(bench: Bench) -> None:
    supervisor = supervise(bench, [])
    bench.batcher.close()
    await asyncio.to_thread(supervisor.worker.join, 5)
    assert supervisor.state == "dead"
    assert not supervisor.check()
    assert supervisor.restarts == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the thread must die
@pytest.mark.parametrize("death", [EngineDead("the device fell off the bus"), SystemExit()])
async def test_a_worker_that_dies_is_replaced_with_a_fresh_engine_and_its_batch_is_answered(
    bench: Bench, death: BaseException
) -> None:
    reloaded: list[Entry] = []
    bench.faults.append(Raise(death))  # type: ignore[arg-type]
    supervisor = supervise(bench, reloaded)
    assert supervisor.ready
    assert not supervisor.check()
    task = asyncio.create_task(bench.submit())
    await until(lambda: not supervisor.ready)
    assert supervisor.check()
    with pytest.raises(NotReady, match="the device worker died") as lost:
        await task
    assert (lost.value.code, lost.value.retryable) == ("worker_lost", True)
    assert len(reloaded) == 1
    assert supervisor.ready
    assert supervisor.restarts == 1
    assert (await bench.submit()).batch_size == 1


async def test_a_worker_that_hangs_is_replaced_and_its_late_answer_is_ignored(bench: Bench) -> None:
    release = threading.Event()
    bench.faults.append(Hang(release))
    supervisor = supervise(bench, [], hang_timeout_s=0.05)
    hung = supervisor.worker
    task = asyncio.create_task(bench.submit())
    await until(lambda: hung.state(time.monotonic(), 0.05) == "hung")
    assert not supervisor.ready
    assert supervisor.check()
    with pytest.raises(NotReady, match="the device worker hangs"):
        await task
    assert (await bench.submit()).batch_size == 1
    release.set()
    await asyncio.to_thread(hung.join, 5)
    assert hung.state(time.monotonic(), 60) == "dead"


async def test_a_busy_worker_is_ready_until_its_batch_is_overdue(bench: Bench) -> None:
    release = threading.Event()
    bench.faults.append(Hang(release))
    supervisor = supervise(bench, [])
    task = asyncio.create_task(bench.submit())
    await until(lambda: supervisor.worker.state(time.monotonic(), 60) == "busy")
    assert supervisor.ready
    release.set()
    await task


class ReportsClosing(FakeEngine):
    """A fake engine that sets an event when it is closed."""

    def __init__(self, manifest: Manifest, fault: Callable[[Feed], Fault | None]) -> None:
        super().__init__(manifest, fault=fault)
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()


async def test_an_engine_stays_open_until_its_batch_ends_even_without_leases(bench: Bench, manifest: Manifest) -> None:
    release = threading.Event()
    bench.faults.append(Hang(release))
    engine = ReportsClosing(manifest, bench.engine.fault)
    holder = LeaseCounter(ServedModel(manifest, engine))
    bench.model = holder.served
    assert holder.acquire()
    bench.worker.start()
    task = asyncio.create_task(bench.submit())
    await until(lambda: engine.batches == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    holder.release()
    holder.retire()
    assert not engine.closed.is_set()
    release.set()
    assert await asyncio.to_thread(engine.closed.wait, 5)


async def test_a_sample_whose_client_released_the_last_lease_is_not_computed(bench: Bench, manifest: Manifest) -> None:
    engine = ReportsClosing(manifest, bench.engine.fault)
    holder = LeaseCounter(ServedModel(manifest, engine))
    fresh, bench.model = bench.model, holder.served
    gone = asyncio.create_task(bench.submit())
    await asyncio.sleep(0)
    holder.retire()
    bench.model = fresh
    bench.worker.start()
    assert (await bench.submit()).batch_size == 1
    assert (engine.closed.is_set(), engine.batches) == (True, 0)
    gone.cancel()


async def test_a_hung_batch_keeps_its_engine_open_until_it_returns(bench: Bench, manifest: Manifest) -> None:
    release = threading.Event()
    bench.faults.append(Hang(release))
    engine = ReportsClosing(manifest, bench.engine.fault)
    holder = LeaseCounter(ServedModel(manifest, engine))
    assert holder.acquire()
    bench.model = holder.served
    supervisor = supervise(bench, [], hang_timeout_s=0.05)
    task = asyncio.create_task(bench.submit())
    await until(supervisor.check)
    with pytest.raises(NotReady):
        await task
    holder.retire()
    holder.release()
    assert not engine.closed.is_set()
    release.set()
    assert await asyncio.to_thread(engine.closed.wait, 5)


async def test_a_lost_device_is_reported_and_nothing_is_started_again(bench: Bench) -> None:
    reloaded: list[Entry] = []
    bench.faults.append(Raise(DeviceLost("the GPU context is lost")))
    supervisor = supervise(bench, reloaded)
    task = asyncio.create_task(bench.submit())
    await until(lambda: not supervisor.ready)
    assert not supervisor.check()
    with pytest.raises(NotReady, match="lost its GPU") as lost:
        await task
    assert (lost.value.code, lost.value.retryable) == ("worker_lost", True)
    assert isinstance(supervisor.device_lost, DeviceLost)
    assert not supervisor.check()
    assert (reloaded, supervisor.restarts, supervisor.ready) == ([], 0, False)
