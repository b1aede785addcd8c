"""The worker with overlapping batches: in order, never too many, and every request is answered whatever happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest

from engines.errors import EngineDead, EngineFailed, EngineOutOfMemory
from engines.fake import FakeEngine
from engines.manifest import Manifest
from engines.repository.versions import ServedModel
from service.batching.batcher import Batcher, BatchPolicy
from service.batching.worker import DeviceWorker
from service.core.batch_rows import ComputedSample, Sample
from service.core.errors import InferenceFailed, NotReady
from service.core.pictures import Size
from tests.service.requests.overlap import Bench, Nobody, StepDevice
from tests.serving.waiting import until

pytestmark = pytest.mark.usefixtures("no_tracebacks")


Answers = Coroutine[Any, Any, ComputedSample]


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
    bench.clock.now += 0.25
    bench.device.launched[0].finished.set()
    answer = await asyncio.wait_for(task, 30)
    assert (answer.queue_s, answer.infer_s) == (0.0, 0.25)


async def test_a_batch_that_waited_behind_another_computes_from_then_on(bench: Bench) -> None:
    first, second = await bench.launch(1), await bench.launch(2)
    bench.clock.now += 0.5
    bench.device.launched[0].finished.set()
    await first
    bench.clock.now += 0.25
    bench.device.launched[1].finished.set()
    assert ((await second).queue_s, (await second).infer_s) == (0.5, 0.25)


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
        with pytest.raises(NotReady, match="died") as lost:
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
    assert hung.state(bench.clock(), 0.2) == "busy"
    bench.clock.now += 0.25
    assert hung.state(bench.clock(), 0.2) == "hung"
    assert bench.supervisor.check()
    for task in tasks:
        with pytest.raises(NotReady, match="the device worker hangs"):
            await task
    for ticket in bench.device.launched:
        ticket.finished.set()
    await asyncio.to_thread(hung.join, 5)
    assert bench.device.closed.is_set()


async def test_a_device_that_makes_progress_does_not_hang_however_long_the_last_batch_waits(bench: Bench) -> None:
    worker = bench.supervisor.worker
    tasks = [await bench.launch(value) for value in (1, 2)]
    for index in range(4):
        bench.clock.now += 0.15
        assert worker.state(bench.clock(), 0.2) == "busy"
        bench.device.launched[index].finished.set()
        await tasks[index]
        tasks.append(await bench.launch(3 + index))


async def test_a_batch_that_an_abandoned_worker_takes_is_answered_all_the_same(bench: Bench) -> None:
    bench.supervisor.worker.abandon()
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
