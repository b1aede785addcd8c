"""The choice of the next batch: its requests and its device."""

from __future__ import annotations

import asyncio
import threading

import pytest

from engines.base import Engine
from service.admission.request_order import QueuePosition
from service.batching.batcher import Batcher, BatchPolicy, QueueHead, answer_entries
from service.core.batch_rows import Sample
from service.core.flow import Flow
from service.core.pictures import Size
from tests.fakes.clock import Clock
from tests.service.batching.entries import computed, model, queued, sample


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        pytest.param([], [], id="nothing waits"),
        pytest.param(
            [QueueHead("a", QueuePosition(2.0, -5, 1)), QueueHead("b", QueuePosition(1.0, -5, 2))],
            ["b", "a"],
            id="the earliest position is first",
        ),
        pytest.param([QueueHead("a", QueuePosition(1.0, -5, 1))], ["a"], id="a lone request does not wait"),
    ],
)
def test_queues_are_served_in_the_order_of_their_first_entries(waiting: list[QueueHead], expected: list[str]) -> None:
    assert BatchPolicy(8).queue_order(waiting) == expected


async def test_rows_of_several_samples_share_a_batch_up_to_its_limit() -> None:
    batcher, served = Batcher(BatchPolicy(8), Clock(0.0)), model()
    three, one = Sample(Size(64, 64), {}, samples=3), sample()
    tasks = await queued(batcher, *((row, served, 9.0) for row in (three, one, three, three)))
    sizes = []
    for _ in range(3):
        batch = batcher.take()
        assert batch is not None
        sizes.append([entry.sample.samples for entry in batch])
        answer_entries(computed(batch))
    assert sizes == [[3, 3], [1], [3]], "eight pictures are the most"
    await asyncio.gather(*tasks)
    assert BatchPolicy(4).largest_batch(32, samples=8) == 1, "a row is never divided"


async def test_a_client_with_one_request_is_in_the_next_batch_after_hundreds_of_another() -> None:
    batcher, served = Batcher(BatchPolicy(8), Clock(0.0)), model()
    crowd = [(sample(), served, 9.0, None, Flow("busy"))] * 100
    tasks = await queued(batcher, *crowd)
    first = batcher.take(0)
    assert first is not None
    answer_entries(computed(first))
    tasks += await queued(batcher, (sample(128), served, 9.0, None, Flow("quiet")))
    second = batcher.take(0)
    third = batcher.take(0)
    assert second is not None
    assert third is not None
    assert sample(128).tile in {entry.sample.tile for entry in (*second, *third)}
    answer_entries([*computed(second), *computed(third)])
    batcher.close()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_batch_rows_gets_the_current_engine_and_the_length_of_all_queues() -> None:
    batcher, served, fresh = Batcher(BatchPolicy(8), Clock(0.0)), model(), model()
    served.set_replacement(fresh)
    tasks = await queued(batcher, *((sample(side), served, 9.0) for side in (64, 64, 128)))
    asked: list[tuple[object, tuple[int, int], int, int]] = []

    def rows(engine: Engine, first: Sample, most: int, waiting: int) -> int:
        asked.append((engine, first.tile, most, waiting))
        return len(asked) - 1

    assert batcher.take(0, rows) is None
    batch = batcher.take(0, rows)
    assert batch is not None
    assert [entry.sample.tile for entry in batch] == [(64, 64)]
    assert asked == [(fresh.engine, (64, 64), 8, 3)] * 2
    answer_entries(computed(batch))
    batcher.close()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_queue_for_a_busy_device_is_overtaken_only_by_queues_for_other_devices() -> None:
    batcher, busy = Batcher(BatchPolicy(8), Clock(0.0)), True
    on_cpu, also_on_cpu, on_gpu = model("a/1"), model("b/1"), model("c/1", device="cuda:0")
    tasks = await queued(batcher, *((sample(), served, 9.0) for served in (on_cpu, also_on_cpu, on_gpu)))

    def rows(engine: Engine, _first: Sample, most: int, _waiting: int) -> int:
        return 0 if busy and engine is on_cpu.engine else most

    taken = [batcher.take(0, rows), batcher.take(0, rows)]
    assert taken[1] is None, "the second model of the CPU would overtake the first"
    busy = False
    taken = [taken[0], batcher.take(0, rows), batcher.take(0, rows)]
    assert [batch[0].model for batch in taken if batch] == [on_gpu, on_cpu, also_on_cpu]
    answer_entries(answer for batch in taken if batch for answer in computed(batch))
    await asyncio.gather(*tasks)


async def test_waiting_for_a_batch_can_be_interrupted() -> None:
    batcher, news = Batcher(BatchPolicy(8), Clock(0.0)), threading.Event()
    taking = asyncio.create_task(asyncio.to_thread(batcher.take, 30, interrupted=news.is_set))
    await asyncio.sleep(0.02)
    batcher.wake()
    await asyncio.sleep(0.02)
    assert not taking.done()
    news.set()
    batcher.wake()
    assert await asyncio.wait_for(taking, 5) is None
