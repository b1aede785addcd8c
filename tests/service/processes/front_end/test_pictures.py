"""Pictures over a socket and shared memory, for a GPU that an engine process has."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engines.cuda.api import Stream
from engines.errors import EngineDead, EngineFailed
from engines.fake import FakeEngine, Hang, Raise
from engines.manifest import Manifest
from service.batching.backend import PictureRefused, SubmitOptions
from service.core.picture_work import PictureWork
from service.imaging.crops import plan_crops
from tests.fakes.picture_gpu import FakePictureGpu, work_on
from tests.fakes.picture_kernels import EmulatedKernels
from tests.serving.waiting import until

PairOf = Callable[..., Any]
AUTO = {"gpu_pictures": "auto"}


def work_for(manifest: Manifest, seed: int = 0) -> PictureWork:
    noise = np.random.default_rng(seed).integers(0, 256, (70, 110, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "JPEG", quality=90)
    mask = np.zeros(noise.shape[:2], np.bool_)
    mask[0:9, 0:7] = mask[50:60, 90:110] = True
    work = work_on(file.getvalue(), mask, plan_crops(mask, manifest.size, "crop"), manifest)
    assert len(work.crops) == 2
    return work


def options() -> SubmitOptions:
    return SubmitOptions(time.monotonic() + 20)


async def test_a_picture_is_the_one_that_a_single_process_gives(pair: PairOf, picture_gpu: FakePictureGpu) -> None:
    begun: list[bool] = []
    async with pair(**AUTO) as both, both.engine(open_lane_pool=picture_gpu.open_lane_pool) as engine:
        await until(lambda: both.front.pictures.works)
        with both.front.models.lease("photos") as model:
            works = [work_for(model.manifest, seed) for seed in range(6)]
            wanted = SubmitOptions(time.monotonic() + 20, lambda: begun.append(True))
            remote = await asyncio.gather(*(both.front.pictures.fill(work, model, wanted) for work in works))
        with engine.backend.models.lease("photos") as served:
            local = [await engine.backend.pictures.fill(work, served, options()) for work in works]
        for ours, theirs in zip(remote, local, strict=True):
            np.testing.assert_array_equal(ours.tile, theirs.tile)
        assert len(begun) == 6
        del ours, remote
        await until(lambda: not both.front.clients[0].slot_bytes)


async def test_a_client_that_leaves_keeps_its_slot_until_the_gpu_has_let_it_go(
    pair: PairOf, picture_gpu: FakePictureGpu
) -> None:
    async with pair(**AUTO) as both, both.engine(open_lane_pool=picture_gpu.open_lane_pool):
        await until(lambda: both.front.pictures.works)
        client = both.front.clients[0]
        with both.front.models.lease("photos") as model:
            picture_gpu.decoder.hold()
            leaving = asyncio.create_task(both.front.pictures.fill(work_for(model.manifest), model, options()))
            await until(picture_gpu.decoder.waiting.is_set)
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            await asyncio.sleep(0.05)
            assert client.slot_bytes
            picture_gpu.decoder.gate.set()
            await until(lambda: not client.slot_bytes)
            assert (await both.front.pictures.fill(work_for(model.manifest), model, options())).tile.any()


def hanging(release: threading.Event) -> Callable[[Manifest], FakeEngine]:
    """An engine whose batches, after those of the warm-up, take until an event."""
    return lambda manifest: FakeEngine(manifest, fault=lambda feed: Hang(release) if feed["image"].any() else None)


async def test_a_client_that_leaves_while_its_tiles_wait_gives_its_slot_back_before_the_batch_ahead_ends(
    pair: PairOf, picture_gpu: FakePictureGpu
) -> None:
    release, begun = threading.Event(), asyncio.Event()
    async with (
        pair(**AUTO) as both,
        both.engine(fake=hanging(release), open_lane_pool=picture_gpu.open_lane_pool) as engine,
    ):
        await until(lambda: both.front.pictures.works)
        client = both.front.clients[0]
        with both.front.models.lease("photos") as model:
            wanted = SubmitOptions(time.monotonic() + 20, begun.set)
            ahead = asyncio.create_task(both.front.pictures.fill(work_for(model.manifest), model, wanted))
            await asyncio.wait_for(begun.wait(), 10)
            held, waiting = client.slot_bytes, len(engine.backend.batcher)
            leaving = asyncio.create_task(both.front.pictures.fill(work_for(model.manifest, 1), model, options()))
            await until(lambda: len(engine.backend.batcher) == waiting + 2)
            leaving.cancel()
            await until(lambda: client.slot_bytes == held)
            assert len(engine.backend.batcher) == waiting
            release.set()
            assert (await ahead).tile.any()


async def test_a_client_that_leaves_while_its_tiles_are_computed_keeps_its_slot_until_they_are(
    pair: PairOf, picture_gpu: FakePictureGpu
) -> None:
    release, begun = threading.Event(), asyncio.Event()
    async with pair(**AUTO) as both, both.engine(fake=hanging(release), open_lane_pool=picture_gpu.open_lane_pool):
        await until(lambda: both.front.pictures.works)
        with both.front.models.lease("photos") as model:
            wanted = SubmitOptions(time.monotonic() + 20, begun.set)
            leaving = asyncio.create_task(both.front.pictures.fill(work_for(model.manifest), model, wanted))
            await asyncio.wait_for(begun.wait(), 10)
            await left_with_its_slot(both, leaving, release)


class HeldPaste(EmulatedKernels):
    """Kernels that paste when an event is set."""

    def __init__(self, gpu: FakePictureGpu) -> None:
        super().__init__(gpu.library, gpu.runtime)
        self.waiting, self.release = threading.Event(), threading.Event()
        self.release.set()

    def launch(self, name: str, height: int, width: int, values: Sequence[int], stream: Stream) -> None:
        if name == "paste":
            self.waiting.set()
            assert self.release.wait(10)
        super().launch(name, height, width, values, stream)


async def test_a_client_that_leaves_while_its_picture_is_pasted_keeps_its_slot_until_it_is(
    pair: PairOf, picture_gpu: FakePictureGpu
) -> None:
    picture_gpu.kernels = kernels = HeldPaste(picture_gpu)
    async with pair(**AUTO) as both, both.engine(open_lane_pool=picture_gpu.open_lane_pool):
        await until(lambda: both.front.pictures.works)
        kernels.waiting.clear()
        kernels.release.clear()
        with both.front.models.lease("photos") as model:
            leaving = asyncio.create_task(both.front.pictures.fill(work_for(model.manifest), model, options()))
            await until(kernels.waiting.is_set)
            await left_with_its_slot(both, leaving, kernels.release)


async def left_with_its_slot(both: Any, leaving: asyncio.Task[Any], release: threading.Event) -> None:
    """Let a client leave, and assert that its slot is in use until `release`."""
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await asyncio.sleep(0.05)
    assert both.front.clients[0].slot_bytes
    release.set()
    await until(lambda: not both.front.clients[0].slot_bytes)
    await until(lambda: both.board.engine(0).load == 0)


async def test_a_front_end_that_dies_while_its_picture_is_decoded_is_forgotten_afterwards(
    pair: PairOf, picture_gpu: FakePictureGpu
) -> None:
    async with pair(**AUTO) as both, both.engine(open_lane_pool=picture_gpu.open_lane_pool) as engine:
        await until(lambda: both.front.pictures.works)
        with both.front.models.lease("photos") as model:
            picture_gpu.decoder.hold()
            lost = asyncio.create_task(both.front.pictures.fill(work_for(model.manifest), model, options()))
            await until(picture_gpu.decoder.waiting.is_set)
            engine.server.close()  # the connection breaks
            with pytest.raises(PictureRefused, match="lost"):
                await lost
            assert both.board.engine(0).load == 1
            picture_gpu.decoder.gate.set()
            await until(lambda: both.board.engine(0).load == 0)


async def test_a_picture_that_the_gpu_refuses_comes_back_as_refused(pair: PairOf, picture_gpu: FakePictureGpu) -> None:
    async with pair(**AUTO) as both, both.engine(open_lane_pool=picture_gpu.open_lane_pool):
        await until(lambda: both.front.pictures.works)
        with both.front.models.lease("photos") as model:
            picture_gpu.decoder.fail = [EngineFailed("nvjpegDecodeBatched: status 3")]
            with pytest.raises(PictureRefused, match="status 3"):
                await both.front.pictures.fill(work_for(model.manifest), model, options())
            assert both.front.pictures.works
        await until(lambda: not both.front.clients[0].slot_bytes)


async def test_a_picture_whose_device_worker_dies_comes_back_as_refused(
    pair: PairOf, picture_gpu: FakePictureGpu
) -> None:
    def dying(manifest: Manifest) -> FakeEngine:
        return FakeEngine(manifest, fault=lambda _feed: Raise(EngineDead("died")))

    async with pair(**AUTO) as both, both.engine(fake=dying, open_lane_pool=picture_gpu.open_lane_pool, warm_up=False):
        await until(lambda: both.front.pictures.works)
        with both.front.models.lease("photos") as model, pytest.raises(PictureRefused, match="nothing now"):
            await both.front.pictures.fill(work_for(model.manifest), model, options())


async def test_a_picture_larger_than_the_shared_memory_is_refused(pair: PairOf, picture_gpu: FakePictureGpu) -> None:
    async with pair(slots_bytes=2**15, **AUTO) as both, both.engine(open_lane_pool=picture_gpu.open_lane_pool):
        await until(lambda: both.front.pictures.works)
        with both.front.models.lease("photos") as model, pytest.raises(PictureRefused, match="shared memory"):
            await both.front.pictures.fill(work_for(model.manifest), model, options())


async def test_a_picture_without_room_in_the_shared_memory_is_refused_at_once(
    pair: PairOf, picture_gpu: FakePictureGpu
) -> None:
    async with pair(slots_bytes=2**19, **AUTO) as both, both.engine(open_lane_pool=picture_gpu.open_lane_pool):
        await until(lambda: both.front.pictures.works)
        with both.front.models.lease("photos") as model:
            picture_gpu.decoder.gate.clear()
            fill = both.front.pictures.fill
            filling = [asyncio.create_task(fill(work_for(model.manifest), model, options())) for _ in range(20)]
            done, held = await asyncio.wait(filling, timeout=5, return_when=asyncio.FIRST_COMPLETED)
            assert held, "some have room"
            with pytest.raises(PictureRefused, match="shared memory"):
                await done.pop()
            picture_gpu.decoder.gate.set()
            assert not (await asyncio.wait(held, timeout=5))[1]


async def test_no_picture_is_sent_once_the_server_shuts_down(pair: PairOf, picture_gpu: FakePictureGpu) -> None:
    async with pair(**AUTO) as both, both.engine(open_lane_pool=picture_gpu.open_lane_pool):
        await until(lambda: both.front.pictures.works)
        both.front.batcher.close()
        assert not both.front.pictures.works
        with both.front.models.lease("photos") as model, pytest.raises(PictureRefused, match="shutting down"):
            await both.front.pictures.fill(work_for(model.manifest), model, options())


async def test_an_engine_process_without_pictures_is_never_asked(pair: PairOf) -> None:
    async with pair() as both, both.engine():
        await until(lambda: both.front.ready)
        assert not both.front.pictures.works
        with both.front.models.lease("photos") as model, pytest.raises(PictureRefused):
            await both.front.pictures.fill(work_for(model.manifest), model, options())


async def test_a_stuck_decode_ends_the_engine_process_and_its_picture_is_refused(
    pair: PairOf, picture_gpu: FakePictureGpu
) -> None:
    async with pair(**AUTO) as both, both.engine(open_lane_pool=picture_gpu.open_lane_pool) as engine:
        await until(lambda: both.front.pictures.works)
        with both.front.models.lease("photos") as model:
            picture_gpu.decoder.hold()
            stuck = asyncio.create_task(both.front.pictures.fill(work_for(model.manifest), model, options()))
            await until(picture_gpu.decoder.waiting.is_set)
            picture_gpu.clock.now += 11
            await until(engine.backend.lost.is_set)
            await until(lambda: not both.front.pictures.works)
            engine.server.close()  # as the end of the process does
            with pytest.raises(PictureRefused):
                await stuck
        picture_gpu.decoder.gate.set()
