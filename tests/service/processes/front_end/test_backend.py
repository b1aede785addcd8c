"""A front end's backend: `submit` has the same contract as in one process; what follows when an engine is lost."""

from __future__ import annotations

import asyncio
import gc
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engines.base import Engine
from engines.errors import EngineDead, EngineFailed, ModelNotFound
from engines.fake import FakeEngine, Fault, Hang, Raise
from engines.manifest import Manifest
from service.batching.local_backend import OpenDevice
from service.core.batch_rows import Sample
from service.core.errors import DeadlineExceeded, InferenceFailed, NotReady, ShuttingDown
from service.core.pictures import Size
from service.devices.contract import SerialDevice
from service.devices.cpu import CpuDevice
from service.devices.planes import Tile
from tests.serving.waiting import until

PairOf = Callable[..., Any]


def sample(seed: int = 0, side: int = 64) -> Sample:
    image = np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8)
    mask = np.zeros((side, side), np.uint8)
    mask[24:40, 24:40] = 1
    return Sample(Size(side, side), {"image": image, "mask": mask})


def later(seconds: float = 20.0) -> float:
    return time.monotonic() + seconds


class Faults:
    """The faults of the batches after the warm-up, one for each batch, in order."""

    def __init__(self, batch_s: float = 0.0) -> None:
        self.waiting: list[Fault] = []
        self.batch_s = batch_s

    def engine(self, manifest: Manifest) -> FakeEngine:
        return FakeEngine(
            manifest, batch_s=self.batch_s, fault=lambda feed: self._next() if feed["image"].any() else None
        )

    def _next(self) -> Fault | None:
        return self.waiting.pop(0) if self.waiting else None


class OwnMemory(CpuDevice):
    """A device that returns tiles in its own memory, as a GPU does where slots are not page-locked."""

    def compute(self, engine: Engine, samples: Sequence[Sample]) -> list[Tile | None]:
        return super().compute(engine, [replace(one, into=None) for one in samples])


@pytest.mark.parametrize("open_device", [None, lambda _: SerialDevice(OwnMemory())], ids=["in its slot", "elsewhere"])
async def test_a_tile_comes_back_and_is_the_one_that_a_single_process_gives(
    pair: PairOf, open_device: OpenDevice | None
) -> None:
    async with pair() as both, both.engine(open_device=open_device) as engine:
        await until(both.serves_all)
        with both.front.models.lease("photos") as model:
            assert model.manifest.key == "photos/1"
            assert (model.engine.name, model.engine.precision) == ("fake", "fp32")
            orders = [sample(seed) for seed in range(20)]
            remote = await asyncio.gather(*(both.front.batcher.submit(one, model, later()) for one in orders))
        with engine.backend.models.lease("photos") as served:
            local = await asyncio.gather(*(engine.backend.batcher.submit(one, served, later()) for one in orders))
    for ours, theirs in zip(remote, local, strict=True):
        assert (ours.tile == theirs.tile).all()
    assert max(done.batch_size for done in remote) > 1
    assert all(done.infer_s > 0 for done in remote)


async def test_statuses_are_those_of_the_engine_process(pair: PairOf, add_model: Callable[..., Path]) -> None:
    async with pair() as both, both.engine() as engine:
        assert not both.front.loaded.is_set()
        await until(both.serves_all)
        assert both.front.loaded.is_set()
        assert both.front.models.statuses() == engine.backend.models.statuses()
        add_model(engine.backend.settings.models_dir, "more", "translate")
        await until(lambda: any(status.name == "more" for status in both.front.models.statuses()))
        with pytest.raises(ModelNotFound, match=r"no model nothing; available: facades/1, more/1, photos/1"):
            both.front.models.lease("nothing").__enter__()


async def test_readiness_is_on_the_board_as_soon_as_a_request_could_see_it(pair: PairOf) -> None:
    async with pair() as both:
        row = both.board.front_end(0)
        async with both.engine():
            await until(both.serves_all)
            assert row.ready
        await until(lambda: not both.front.ready)
        assert not row.ready


async def test_errors_come_back_as_what_they_were(pair: PairOf) -> None:
    faults = Faults()
    async with pair() as both, both.engine(fake=faults.engine):
        await until(both.serves_all)
        with both.front.models.lease("photos") as model:
            faults.waiting.append(Raise(EngineFailed("no luck")))
            with pytest.raises(InferenceFailed, match="no luck"):
                await both.front.batcher.submit(sample(), model, later())
            with pytest.raises(DeadlineExceeded):
                await both.front.batcher.submit(sample(), model, time.monotonic())
            assert (await both.front.batcher.submit(sample(), model, later())).tile.shape == (64, 64, 3)


async def test_a_job_is_notified_when_its_batch_begins(pair: PairOf) -> None:
    async with pair() as both, both.engine():
        await until(both.serves_all)
        begun: list[bool] = []
        with both.front.models.lease("photos") as model:
            await both.front.batcher.submit(sample(), model, later(), lambda: begun.append(True))
    assert begun == [True]


async def test_what_is_withdrawn_while_it_waits_is_not_computed_and_what_computes_keeps_its_slot_until_it_is_done(
    pair: PairOf,
) -> None:
    faults, release = Faults(), threading.Event()
    async with pair() as both, both.engine(fake=faults.engine) as engine:
        await until(both.serves_all)
        fake = next(fake for fake in engine.fakes if fake.manifest.name == "photos")
        arena = both.front.clients[0]._connection.arena
        whole, before = arena.free_bytes, fake.samples
        faults.waiting.append(Hang(release))
        with both.front.models.lease("photos") as model:
            computing = asyncio.create_task(both.front.batcher.submit(sample(1), model, later()))
            await until(lambda: fake.samples == before + 1)
            waiting = [asyncio.create_task(both.front.batcher.submit(sample(2), model, later())) for _ in range(5)]
            await until(lambda: len(engine.backend.batcher) == 5)
            for task in (computing, *waiting):
                task.cancel()
            await asyncio.wait({computing, *waiting})
            await until(lambda: len(engine.backend.batcher) == 0)
            await until(lambda: whole - arena.free_bytes == 28672)  # one slot, into which the engine still writes
            release.set()
            await until(lambda: arena.free_bytes == whole)
        assert fake.samples == before + 1
        await until(lambda: both.board.engine(0).load == 0)


async def test_requests_of_an_engine_process_that_is_lost_are_asked_again_of_the_next(pair: PairOf) -> None:
    faults, release = Faults(), threading.Event()
    async with pair(hang_timeout_s=30) as both:
        async with both.engine(fake=faults.engine) as engine:
            await until(both.serves_all)
            faults.waiting.append(Hang(release))
            stack = ExitStack()
            model = stack.enter_context(both.front.models.lease("photos"))
            pending = [asyncio.create_task(both.front.batcher.submit(sample(n), model, later())) for n in range(9)]
            await until(lambda: both.board.engine(0).load == 9)
            for session in engine.server._sessions:  # as the kernel does when a process ends
                session.channel._transport.abort()
            await until(lambda: not both.front.clients[0].unanswered_samples)
            release.set()
        assert not both.front.ready
        both.board.engine(0).clear_row()
        async with both.engine() as engine:
            done = await asyncio.gather(*pending)
            with engine.backend.models.lease("photos") as served:
                for number, computed in enumerate(done):
                    again = await engine.backend.batcher.submit(sample(number), served, later())
                    assert (computed.tile == again.tile).all()
        stack.close()


async def test_a_request_over_which_the_engine_is_lost_twice_is_answered(pair: PairOf) -> None:
    faults = Faults()
    async with pair() as both, both.engine(fake=faults.engine):
        await until(both.serves_all)
        with both.front.models.lease("photos") as model:
            faults.waiting += [Raise(EngineDead("died")), Raise(EngineDead("died again"))]
            with pytest.raises(NotReady) as raised:
                await both.front.batcher.submit(sample(), model, later())
            assert raised.value.code == "worker_lost"
            faults.waiting.append(Raise(EngineDead("once")))
            assert (await both.front.batcher.submit(sample(), model, later())).batch_size == 1


async def test_two_engine_processes_share_the_work_and_one_does_all_of_it_when_the_other_is_lost(pair: PairOf) -> None:
    slow, faults, release = Faults(0.01), Faults(0.01), threading.Event()
    async with (
        pair(engines=2, max_batch_size=1) as both,
        both.engine(0, slow.engine) as first,
        both.engine(1, faults.engine) as second,
    ):
        await until(lambda: all(client.loaded and client.ready for client in both.front.clients))
        before = [sum(fake.samples for fake in engine.fakes) for engine in (first, second)]
        with both.front.models.lease("photos") as model:
            await asyncio.gather(*(both.front.batcher.submit(sample(n), model, later()) for n in range(40)))
        done = [sum(f.samples for f in e.fakes) - n for e, n in zip((first, second), before, strict=True)]
        assert sum(done) == 40
        assert min(done) >= 12
        faults.waiting.append(Hang(release))
        with both.front.models.lease("photos") as model:
            pending = [asyncio.create_task(both.front.batcher.submit(sample(n), model, later())) for n in range(20)]
            await until(lambda: both.board.engine(1).load > 2)
            for session in second.server._sessions:
                session.channel._transport.abort()
            release.set()
            assert len(await asyncio.gather(*pending)) == 20


async def test_a_replaced_model_serves_its_remaining_leases_and_is_then_closed(
    pair: PairOf, add_model: Callable[..., Path]
) -> None:
    async with pair() as both, both.engine() as engine:
        await until(both.serves_all)
        old = next(fake for fake in engine.fakes if fake.manifest.name == "photos")
        with both.front.models.lease("photos") as model:
            add_model(engine.backend.settings.models_dir, "photos", "inpaint", version=2)
            await until(lambda: len(both.front.clients[0].models) == 3)
            with both.front.models.lease("photos") as newer:
                assert newer.manifest.version == 2
            assert old.dead is None
            await both.front.batcher.submit(sample(), model, later())
        await until(lambda: old.dead == "is closed")
        assert len(both.front.clients[0].models) == 2


async def test_an_older_version_is_loaded_on_request(
    pair: PairOf, add_model: Callable[..., Path], models_dir: Path
) -> None:
    add_model(models_dir, "photos", "inpaint", version=2)
    async with pair() as both, both.engine():
        await until(both.serves_all)
        with ExitStack() as stack:
            model = await asyncio.to_thread(stack.enter_context, both.front.models.lease("photos", 1))
            assert model.manifest.version == 1
            await both.front.batcher.submit(sample(), model, later())
        with pytest.raises(ModelNotFound), ExitStack() as stack:
            await asyncio.to_thread(stack.enter_context, both.front.models.lease("photos", 7))


async def test_a_model_that_is_gone_is_offered_no_longer(pair: PairOf) -> None:
    async with pair() as both, both.engine() as engine:
        await until(both.serves_all)
        shutil.rmtree(engine.backend.settings.models_dir / "photos")
        await until(lambda: len(both.front.models.statuses()) == 1)
        with pytest.raises(ModelNotFound):
            both.front.models.lease("photos").__enter__()


async def test_requests_that_wait_when_the_backend_closes_get_an_error(pair: PairOf) -> None:
    faults, release = Faults(), threading.Event()
    async with pair() as both, both.engine(fake=faults.engine):
        await until(both.serves_all)
        faults.waiting.append(Hang(release))
        with both.front.models.lease("photos") as model:
            pending = [asyncio.create_task(both.front.batcher.submit(sample(), model, later())) for _ in range(3)]
            await until(lambda: both.board.engine(0).load == 3)
            both.front.batcher.close()
            answers = await asyncio.gather(*pending, return_exceptions=True)
            assert [type(answer) for answer in answers] == [ShuttingDown] * 3
            with pytest.raises(ShuttingDown):
                await both.front.batcher.submit(sample(), model, later())
            release.set()


async def test_more_samples_than_slots_are_all_computed(pair: PairOf) -> None:
    async with pair(slots_bytes=100_000) as both, both.engine():
        await until(both.serves_all)
        with both.front.models.lease("photos") as model:
            done = await asyncio.gather(*(both.front.batcher.submit(sample(n), model, later()) for n in range(50)))
            assert len(done) == 50
            arena = both.front.clients[0]._connection.arena
            del done
            gc.collect()
            await until(lambda: arena.free_bytes == arena.memory.nbytes)


async def test_a_worker_that_hangs_ends_the_process_instead_of_being_replaced(pair: PairOf) -> None:
    faults, release = Faults(), threading.Event()
    async with pair(hang_timeout_s=0.2) as both, both.engine(fake=faults.engine) as engine:
        await until(both.serves_all)
        faults.waiting.append(Hang(release))
        with both.front.models.lease("photos") as model:
            pending = asyncio.create_task(both.front.batcher.submit(sample(), model, later()))
            await asyncio.wait_for(engine.backend.lost.wait(), 10)
            assert engine.backend.supervisor.restarts == 0
            assert not pending.done()
            pending.cancel()
            await asyncio.wait({pending})
            release.set()
