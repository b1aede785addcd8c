"""The queue before the engine: which samples form a batch, when, and which are dropped."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any, cast

import numpy as np
import pytest

from engines.repository.versions import ServedModel
from service.batching.batcher import Batcher, BatchPolicy, answer_entries, fail_entries
from service.core.batch_rows import Sample
from service.core.errors import DeadlineExceeded, InferenceFailed, ShuttingDown
from service.core.pictures import Size
from tests.fakes.clock import Clock
from tests.service.batching.entries import StubEngine, computed, model, queued, sample
from tests.serving.waiting import until


@pytest.mark.parametrize(("server", "of_model", "size"), [(8, 32, 8), (8, 4, 4)])
def test_a_batch_obeys_the_servers_and_the_models_limit(server: int, of_model: int, size: int) -> None:
    assert BatchPolicy(server).largest_batch(of_model) == size


async def test_a_single_request_is_taken_at_once() -> None:
    batcher = Batcher(BatchPolicy(8), Clock(0.0))
    (task,) = await queued(batcher, (sample(), model(), 1.0))
    batch = batcher.take(0)
    assert batch is not None
    answer_entries(computed(batch))
    assert (await task).batch_size == 1


async def test_queued_requests_share_a_batch_up_to_its_limit() -> None:
    batcher, served = Batcher(BatchPolicy(3), Clock(0.0)), model()
    tasks = await queued(batcher, *[(sample(), served, 1.0)] * 5)
    sizes = []
    while batch := batcher.take(0):
        sizes.append(len(batch))
        answer_entries(computed(batch))
    await asyncio.gather(*tasks)
    assert sizes == [3, 2]
    assert len(batcher) == 0


@pytest.mark.usefixtures("no_collections")
async def test_a_sample_that_failed_is_freed_without_a_garbage_collection() -> None:
    batcher, one = Batcher(BatchPolicy(8), Clock(0.0)), Sample(Size(64, 64), {"image": np.zeros(1)})
    watched = weakref.ref(one.arrays["image"])
    (task,) = await queued(batcher, (one, model(), 1.0))
    fail_entries(batcher.take(0) or [], InferenceFailed("no memory"))
    await asyncio.wait({task})
    assert isinstance(task.exception(), InferenceFailed)
    del one, task
    await until(lambda: watched() is None, 5)


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
        answer_entries(computed(batch))
    await asyncio.gather(*tasks)
    assert batches == [[("photos/1", 64)] * 2, [("photos/1", 128)], [("faces/1", 64)]]


async def test_a_request_whose_client_disconnected_is_not_computed() -> None:
    batcher, served = Batcher(BatchPolicy(8), Clock(0.0)), model()
    gone, stays = await queued(batcher, (sample(), served, 1.0), (sample(), served, 1.0))
    gone.cancel()
    await asyncio.sleep(0)
    assert len(batcher) == 1
    batch = batcher.take(0)
    assert batch is not None
    assert len(batch) == 1
    answer_entries(computed(batch))
    await stays


async def test_a_disconnect_during_a_batch_affects_no_other_request() -> None:
    batcher, served = Batcher(BatchPolicy(8), Clock(0.0)), model()
    gone, stays = await queued(batcher, (sample(), served, 1.0), (sample(), served, 1.0))
    batch = batcher.take(0)
    assert batch is not None
    gone.cancel()
    await asyncio.sleep(0)
    answer_entries(computed(batch))
    assert (await stays).batch_size == 2


async def test_a_request_whose_deadline_passed_in_the_queue_fails_and_is_not_computed() -> None:
    clock = Clock(0.0)
    batcher, served = Batcher(BatchPolicy(8), clock), model()
    late, in_time = await queued(batcher, (sample(), served, 1.0), (sample(), served, 5.0))
    clock.now = 2.0
    batch = batcher.take(0)
    assert batch is not None
    assert len(batch) == 1
    answer_entries(computed(batch))
    await in_time
    with pytest.raises(DeadlineExceeded, match="2000 ms in the queue"):
        await late


@pytest.mark.parametrize("queues", [1, 1100], ids=["one", "more than calls can be nested"])
async def test_queues_of_only_late_requests_are_skipped(queues: int) -> None:
    clock, photos = Clock(0.0), model()
    batcher = Batcher(BatchPolicy(8), clock)
    late = [(sample(side), photos, 1.0) for side in range(1, 1 + queues)]
    *requests, in_time = await queued(batcher, *late, (sample(2048), photos, 5.0))
    clock.now = 2.0
    batch = batcher.take(0)
    assert batch is not None
    assert batch[0].sample.tile.height == 2048
    answer_entries(computed(batch))
    assert all(isinstance(one, DeadlineExceeded) for one in await asyncio.gather(*requests, return_exceptions=True))
    await in_time


async def test_a_failed_batch_reaches_every_request_in_it() -> None:
    batcher, served = Batcher(BatchPolicy(8), Clock(0.0)), model()
    tasks = await queued(batcher, *[(sample(), served, 1.0)] * 3)
    batch = batcher.take(0)
    assert batch is not None
    fail_entries(batch, InferenceFailed("it broke"))
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(answer) for answer in answers] == [InferenceFailed] * 3


async def test_an_entry_is_answered_once_even_if_two_answer_it() -> None:
    batcher = Batcher(BatchPolicy(8), Clock(0.0))
    (task,) = await queued(batcher, (sample(), model(), 1.0))
    batch = batcher.take(0)
    assert batch is not None
    fail_entries(batch, InferenceFailed("first"))
    answer_entries(computed(batch))
    with pytest.raises(InferenceFailed, match="first"):
        await task


async def test_closing_answers_queued_requests_and_refuses_new_ones() -> None:
    batcher, served = Batcher(BatchPolicy(8), Clock(0.0)), model()
    (task,) = await queued(batcher, (sample(), served, 1.0))
    batcher.close()
    with pytest.raises(ShuttingDown):
        await task
    with pytest.raises(ShuttingDown):
        await batcher.submit(sample(), served, 1.0)
    assert batcher.take() is None


async def test_requests_queued_for_a_dead_engine_are_computed_by_its_replacement() -> None:
    batcher, dead = Batcher(BatchPolicy(8), Clock(0.0)), model()
    fresh = ServedModel(dead.manifest, cast("Any", StubEngine()))
    tasks = await queued(batcher, (sample(), dead, 1.0), (sample(), dead, 1.0))
    dead.set_replacement(fresh)
    tasks += await queued(batcher, (sample(), fresh, 1.0))
    batch = batcher.take(0)
    assert batch is not None
    assert [entry.model.engine for entry in batch] == [fresh.engine] * 3
    answer_entries(computed(batch))
    await asyncio.gather(*tasks)


async def test_a_batch_never_mixes_two_engines_of_one_model() -> None:
    batcher, first, second = Batcher(BatchPolicy(8), Clock(0.0)), model(), model()
    tasks = await queued(batcher, (sample(), first, 1.0), (sample(), second, 1.0), (sample(), first, 1.0))
    engines = []
    while batch := batcher.take(0):
        engines.append([entry.model.engine for entry in batch])
        answer_entries(computed(batch))
    await asyncio.gather(*tasks)
    assert engines == [[first.engine], [second.engine], [first.engine]]


async def test_a_waiting_worker_wakes_up_when_a_request_comes() -> None:
    batcher = Batcher(BatchPolicy(8), Clock(0.0))
    taken = asyncio.create_task(asyncio.to_thread(batcher.take, 5.0))
    (task,) = await queued(batcher, (sample(), model(), 1.0))
    batch = await taken
    assert batch is not None
    answer_entries(computed(batch))
    await task


def test_an_idle_batcher_returns_no_batch_after_the_timeout() -> None:
    assert Batcher(BatchPolicy(8), Clock(0.0)).take(0.001) is None


async def test_a_batcher_has_a_readable_repr() -> None:
    batcher = Batcher(BatchPolicy(8), Clock(0.0))
    (task,) = await queued(batcher, (sample(), model(), 1.0))
    assert repr(batcher) == "<Batcher [1 queued in 1 queues]>"
    batcher.close()
    assert repr(batcher) == "<Batcher [0 queued in 0 queues, closed]>"
    await asyncio.gather(task, return_exceptions=True)
