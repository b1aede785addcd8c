"""The queue before the engine: who is batched with whom, when, and who is left out."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest

from engines.base import Engine
from engines.manifest import Manifest
from engines.repository.versions import ServedModel
from service.admission.fairness import QueuePosition
from service.batching.batcher import Batcher, BatchPolicy, Entry, QueueHead, answer_all, fail
from service.core.errors import DeadlineExceeded, InferenceFailed, ShuttingDown
from service.core.flow import Flow
from service.core.items import Computed, Sample, Size
from tests.fakes.clock import Clock


@dataclass(frozen=True)
class StubManifest:
    key: str = "photos/1"
    max_batch: int = 8
    onnx_sha256: str = ""


@dataclass(eq=False)
class StubEngine:
    device: str = "cpu"


def model(key: str = "photos/1", max_batch: int = 8, device: str = "cpu") -> ServedModel:
    return ServedModel(cast("Manifest", StubManifest(key, max_batch)), cast("Any", StubEngine(device)))


def sample(side: int = 64) -> Sample:
    return Sample(Size(side, side), {})


def computed(batch: list[Entry]) -> list[tuple[Entry, Any]]:
    return [(entry, Computed(np.zeros((1, 1, 3), np.uint8), len(batch), 0.0, 0.0, 0.0)) for entry in batch]


async def queued(batcher: Batcher, *requests: tuple[Sample, ServedModel, float]) -> list[asyncio.Task[Computed]]:
    tasks = [asyncio.create_task(batcher.submit(*request)) for request in requests]
    await asyncio.sleep(0)
    return tasks


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        pytest.param([], [], id="nothing waits"),
        pytest.param(
            [QueueHead("a", QueuePosition(2.0, -5, 1)), QueueHead("b", QueuePosition(1.0, -5, 2))],
            ["b", "a"],
            id="the next turn is first",
        ),
        pytest.param([QueueHead("a", QueuePosition(1.0, -5, 1))], ["a"], id="a lone request does not wait for company"),
    ],
)
def test_queues_come_in_the_order_of_their_first_entries_turns(waiting: list[QueueHead], expected: list[str]) -> None:
    assert BatchPolicy(8).order(waiting) == expected


@pytest.mark.parametrize(("server", "of_model", "size"), [(8, 32, 8), (8, 4, 4)])
def test_a_batch_obeys_the_servers_and_the_models_limit(server: int, of_model: int, size: int) -> None:
    assert BatchPolicy(server).size(of_model) == size


async def test_a_lone_request_is_taken_at_once() -> None:
    batcher = Batcher(BatchPolicy(8), Clock(0.0))
    (task,) = await queued(batcher, (sample(), model(), 1.0))
    batch = batcher.take(0)
    assert batch is not None
    answer_all(computed(batch))
    assert (await task).batch_size == 1


async def test_requests_that_gathered_share_a_batch_up_to_its_limit() -> None:
    batcher, served = Batcher(BatchPolicy(3), Clock(0.0)), model()
    tasks = await queued(batcher, *[(sample(), served, 1.0)] * 5)
    sizes = []
    while batch := batcher.take(0):
        sizes.append(len(batch))
        answer_all(computed(batch))
    await asyncio.gather(*tasks)
    assert sizes == [3, 2]
    assert len(batcher) == 0


async def test_tiles_of_different_sizes_and_models_are_not_mixed() -> None:
    clock = Clock(0.0)
    batcher, photos, faces = Batcher(BatchPolicy(8), clock), model(), model("faces/1")
    tasks = await queued(
        batcher,
        (sample(64), photos, 9.0),
        (sample(128), photos, 9.0),
        (sample(64), faces, 9.0),
        (sample(64), photos, 9.0),
    )
    batches = []
    while batch := batcher.take(0):
        batches.append([(entry.model.manifest.key, entry.sample.tile.height) for entry in batch])
        answer_all(computed(batch))
    await asyncio.gather(*tasks)
    assert batches == [[("photos/1", 64)] * 2, [("photos/1", 128)], [("faces/1", 64)]]


async def test_a_request_whose_client_left_is_not_computed() -> None:
    batcher, served = Batcher(BatchPolicy(8), Clock(0.0)), model()
    gone, stays = await queued(batcher, (sample(), served, 1.0), (sample(), served, 1.0))
    gone.cancel()
    await asyncio.sleep(0)
    assert len(batcher) == 1
    batch = batcher.take(0)
    assert batch is not None
    assert len(batch) == 1
    answer_all(computed(batch))
    await stays


async def test_a_client_that_leaves_while_its_batch_runs_disturbs_nobody() -> None:
    batcher, served = Batcher(BatchPolicy(8), Clock(0.0)), model()
    gone, stays = await queued(batcher, (sample(), served, 1.0), (sample(), served, 1.0))
    batch = batcher.take(0)
    assert batch is not None
    gone.cancel()
    await asyncio.sleep(0)
    answer_all(computed(batch))
    assert (await stays).batch_size == 2


async def test_a_request_whose_deadline_passed_in_the_queue_is_told_so_and_not_computed() -> None:
    clock = Clock(0.0)
    batcher, served = Batcher(BatchPolicy(8), clock), model()
    late, in_time = await queued(batcher, (sample(), served, 1.0), (sample(), served, 5.0))
    clock.now = 2.0
    batch = batcher.take(0)
    assert batch is not None
    assert len(batch) == 1
    answer_all(computed(batch))
    await in_time
    with pytest.raises(DeadlineExceeded, match="2000 ms in the queue"):
        await late


async def test_a_queue_of_only_dead_requests_gives_way_to_the_next_one() -> None:
    clock = Clock(0.0)
    batcher = Batcher(BatchPolicy(8), clock)
    late, in_time = await queued(batcher, (sample(64), model(), 1.0), (sample(128), model(), 5.0))
    clock.now = 2.0
    batch = batcher.take(0)
    assert batch is not None
    assert batch[0].sample.tile.height == 128
    answer_all(computed(batch))
    await asyncio.gather(late, in_time, return_exceptions=True)


async def test_a_failed_batch_reaches_every_request_in_it() -> None:
    batcher, served = Batcher(BatchPolicy(8), Clock(0.0)), model()
    tasks = await queued(batcher, *[(sample(), served, 1.0)] * 3)
    batch = batcher.take(0)
    assert batch is not None
    fail(batch, InferenceFailed("it broke"))
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(answer) for answer in answers] == [InferenceFailed] * 3


async def test_an_entry_is_answered_once_even_if_two_answer_it() -> None:
    batcher = Batcher(BatchPolicy(8), Clock(0.0))
    (task,) = await queued(batcher, (sample(), model(), 1.0))
    batch = batcher.take(0)
    assert batch is not None
    fail(batch, InferenceFailed("first"))
    answer_all(computed(batch))
    with pytest.raises(InferenceFailed, match="first"):
        await task


async def test_closing_answers_what_waits_and_refuses_what_comes() -> None:
    batcher, served = Batcher(BatchPolicy(8), Clock(0.0)), model()
    (task,) = await queued(batcher, (sample(), served, 1.0))
    batcher.close()
    with pytest.raises(ShuttingDown):
        await task
    with pytest.raises(ShuttingDown):
        await batcher.submit(sample(), served, 1.0)
    assert batcher.take() is None


async def test_what_waited_for_an_engine_that_died_is_computed_by_its_replacement() -> None:
    batcher, dead = Batcher(BatchPolicy(8), Clock(0.0)), model()
    fresh = ServedModel(dead.manifest, cast("Any", StubEngine()))
    tasks = await queued(batcher, (sample(), dead, 1.0), (sample(), dead, 1.0))
    dead.replace_by(fresh)
    tasks += await queued(batcher, (sample(), fresh, 1.0))
    batch = batcher.take(0)
    assert batch is not None
    assert [entry.model.engine for entry in batch] == [fresh.engine] * 3
    answer_all(computed(batch))
    await asyncio.gather(*tasks)


async def test_two_engines_of_one_model_are_never_asked_for_one_batch() -> None:
    batcher, first, second = Batcher(BatchPolicy(8), Clock(0.0)), model(), model()
    tasks = await queued(batcher, (sample(), first, 1.0), (sample(), second, 1.0), (sample(), first, 1.0))
    engines = []
    while batch := batcher.take(0):
        engines.append([entry.model.engine for entry in batch])
        answer_all(computed(batch))
    await asyncio.gather(*tasks)
    assert engines == [[first.engine], [second.engine], [first.engine]]


async def test_a_waiting_worker_wakes_up_when_a_request_comes() -> None:
    batcher = Batcher(BatchPolicy(8), Clock(0.0))
    taken = asyncio.create_task(asyncio.to_thread(batcher.take, 5.0))
    (task,) = await queued(batcher, (sample(), model(), 1.0))
    batch = await taken
    assert batch is not None
    answer_all(computed(batch))
    await task


def test_an_idle_batcher_gives_nothing_after_the_time_allowed() -> None:
    assert Batcher(BatchPolicy(8), Clock(0.0)).take(0.001) is None


async def test_its_state_prints_itself() -> None:
    batcher = Batcher(BatchPolicy(8), Clock(0.0))
    (task,) = await queued(batcher, (sample(), model(), 1.0))
    assert repr(batcher) == "<Batcher [1 queued in 1 queues]>"
    batcher.close()
    assert repr(batcher) == "<Batcher [0 queued in 0 queues, closed]>"
    await asyncio.gather(task, return_exceptions=True)


async def test_rows_of_several_samples_share_a_batch_with_their_like_as_far_as_there_is_room() -> None:
    batcher, served = Batcher(BatchPolicy(8), Clock(0.0)), model()
    three, one = Sample(Size(64, 64), {}, samples=3), sample()
    tasks = await queued(batcher, *((row, served, 9.0) for row in (three, one, three, three)))
    sizes = []
    for _ in range(3):
        batch = batcher.take()
        assert batch is not None
        sizes.append([entry.sample.samples for entry in batch])
        answer_all(computed(batch))
    assert sizes == [[3, 3], [1], [3]], "eight pictures are the most"
    await asyncio.gather(*tasks)
    assert BatchPolicy(4).size(32, samples=8) == 1, "a row is never divided"


async def test_a_client_with_one_request_is_in_the_next_batch_after_hundreds_of_another() -> None:
    batcher, served = Batcher(BatchPolicy(8), Clock(0.0)), model()
    crowd = [(sample(), served, 9.0, None, Flow("busy"))] * 100
    tasks = await queued(batcher, *crowd)
    first = batcher.take(0)
    assert first is not None
    answer_all(computed(first))
    tasks += await queued(batcher, (sample(128), served, 9.0, None, Flow("quiet")))
    second = batcher.take(0)
    third = batcher.take(0)
    assert second is not None
    assert third is not None
    assert sample(128).tile in {entry.sample.tile for entry in (*second, *third)}
    answer_all([*computed(second), *computed(third)])
    batcher.close()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_device_is_asked_about_the_engine_that_will_compute_and_about_everyone_who_waits() -> None:
    batcher, served, fresh = Batcher(BatchPolicy(8), Clock(0.0)), model(), model()
    served.replace_by(fresh)
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
    answer_all(computed(batch))
    batcher.close()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_who_waits_for_a_busy_device_is_passed_by_others_but_by_nobody_of_that_device() -> None:
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
    answer_all(answer for batch in taken if batch for answer in computed(batch))
    await asyncio.gather(*tasks)


async def test_waiting_ends_when_there_is_something_else_to_do() -> None:
    batcher, news = Batcher(BatchPolicy(8), Clock(0.0)), threading.Event()
    taking = asyncio.create_task(asyncio.to_thread(batcher.take, 30, interrupted=news.is_set))
    await asyncio.sleep(0.02)
    batcher.wake()
    await asyncio.sleep(0.02)
    assert not taking.done()
    news.set()
    batcher.wake()
    assert await asyncio.wait_for(taking, 5) is None
