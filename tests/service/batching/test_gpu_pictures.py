"""Requests on a GPU in host memory, from the order to the reply, against the same on the CPU."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engines.errors import DeviceLost, EngineFailed, EngineUnavailable
from engines.fake import FakeEngine
from engines.manifest import Manifest
from engines.repository.repository import ModelRepository
from engines.repository.versions import LeaseCounter, ServedModel
from service.app import open_pipeline
from service.batching.backend import PictureRefused, SubmitOptions
from service.batching.batcher import Batcher, BatchPolicy, fail_entries
from service.batching.gpu_pictures import LocalPictures
from service.batching.local_backend import LocalBackend, open_local_backend
from service.batching.supervisor import Supervisor
from service.core.call import Call
from service.core.errors import DeadlineExceeded, ShuttingDown
from service.core.order import Order
from service.core.picture_work import PictureWork, new_arrays
from service.core.schemas import InpaintOptions
from service.core.settings import Settings
from service.imaging.crops import plan_crops
from service.pipeline import Pipeline
from service.telemetry.metrics import Metrics
from tests.fakes.picture_gpu import FakePictureGpu, work_on
from tests.serving.fake_models import fake_manifest
from tests.serving.waiting import until


def jpeg(seed: int = 0, **options: Any) -> bytes:
    noise = np.random.default_rng(seed).integers(0, 256, (30, 40, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).resize((120, 90), Image.Resampling.BICUBIC).save(file, "JPEG", **options)
    return file.getvalue()


def mask() -> bytes:
    pixels, file = np.zeros((90, 120), np.uint8), io.BytesIO()
    pixels[0:20, 30:50] = pixels[60:64, 100:120] = 255
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def order_of(image: bytes) -> Order:
    options = InpaintOptions(format="png", save=False)
    return Order("inpaint", {"image": image, "mask": mask()}, options)


def call() -> Call:
    return Call(request_id="1", received_at=time.monotonic(), deadline=time.monotonic() + 20)


def pixels_of(body: bytes) -> Any:
    with Image.open(io.BytesIO(body)) as image:
        return np.asarray(image).astype(np.int16)


@pytest.fixture
def pipeline(models_dir: Path, tmp_path: Path, picture_gpu: FakePictureGpu) -> Callable[..., Any]:
    @asynccontextmanager
    async def opened(way: str = "auto") -> AsyncIterator[Pipeline]:
        settings = Settings(
            models_dir=models_dir, results_dir=tmp_path / "results", engine="fake", save=False, gpu_pictures=way
        )
        async with open_pipeline(
            settings, partial(open_local_backend, open_lane_pool=picture_gpu.open_lane_pool)
        ) as pipeline:
            yield pipeline

    return opened


@pytest.mark.parametrize("options", [{"subsampling": 0}, {"subsampling": 2, "quality": 60}], ids=str)
async def test_a_reply_is_that_of_the_cpu_within_one_level(
    pipeline: Callable[..., Any], picture_gpu: FakePictureGpu, options: dict[str, Any]
) -> None:
    image = jpeg(**options)
    async with pipeline("off") as on_cpu:
        expected = await on_cpu.run(order_of(image), call())
    async with pipeline() as on_gpu:
        await until(lambda: on_gpu.pictures.works)
        decoded = len(picture_gpu.decoder.batches)
        reply = await on_gpu.run(order_of(image), call())
    assert len(picture_gpu.decoder.batches) == decoded + 1
    ours, theirs = pixels_of(reply.pictures[0].body), pixels_of(expected.pictures[0].body)
    outside = np.asarray(Image.open(io.BytesIO(mask()))) == 0
    assert np.abs(ours - theirs).max() <= 1
    np.testing.assert_array_equal(ours[outside], theirs[outside])
    assert (reply.size, reply.coverage, reply.engine) == (expected.size, expected.coverage, expected.engine)


@pytest.mark.parametrize("image", [jpeg(progressive=True), jpeg()[:-300]], ids=["progressive", "truncated"])
async def test_what_the_cpu_must_decode_never_reaches_the_gpu(
    pipeline: Callable[..., Any], picture_gpu: FakePictureGpu, image: bytes
) -> None:
    async def answer(opened: Pipeline) -> Any:
        try:
            return (await opened.run(order_of(image), call())).pictures[0].body
        except Exception as error:
            return repr(error)

    async with pipeline("off") as on_cpu:
        expected = await answer(on_cpu)
    async with pipeline() as on_gpu:
        await until(lambda: on_gpu.pictures.works)
        decoded = len(picture_gpu.decoder.batches)
        assert await answer(on_gpu) == expected
    assert len(picture_gpu.decoder.batches) == decoded


async def test_a_picture_that_the_gpu_refuses_is_computed_by_the_cpu(
    pipeline: Callable[..., Any], picture_gpu: FakePictureGpu
) -> None:
    async with pipeline() as on_gpu:
        await until(lambda: on_gpu.pictures.works)
        picture_gpu.decoder.fail = [EngineFailed("nvjpegDecodeBatched: status 3")]
        reply = await on_gpu.run(order_of(jpeg()), call())
        assert not picture_gpu.decoder.fail, "the GPU was asked"
        assert pixels_of(reply.pictures[0].body).shape == (90, 120, 3)
        assert on_gpu.pictures.works
        await on_gpu.run(order_of(jpeg()), call())
        counts = on_gpu.metrics.exposition().decode()
        assert 'retouch_gpu_pictures_total{outcome="refused"} 1.0' in counts
        assert 'retouch_gpu_pictures_total{outcome="done"} 1.0' in counts


async def test_without_a_decoder_the_cpu_serves(pipeline: Callable[..., Any], picture_gpu: FakePictureGpu) -> None:
    picture_gpu.missing = EngineUnavailable("this GPU has no JPEG decoder in hardware")
    async with pipeline() as opened:
        await until(lambda: picture_gpu.asked)
        reply = await opened.run(order_of(jpeg()), call())
        assert pixels_of(reply.pictures[0].body).shape == (90, 120, 3)
        assert not opened.pictures.works


async def test_a_decode_that_is_stuck_is_computed_by_the_cpu_as_are_all_later_ones(
    pipeline: Callable[..., Any], picture_gpu: FakePictureGpu
) -> None:
    async with pipeline() as on_gpu:
        await until(lambda: on_gpu.pictures.works)
        picture_gpu.decoder.hold()
        stuck = asyncio.create_task(on_gpu.run(order_of(jpeg()), call()))
        await until(picture_gpu.decoder.waiting.is_set)
        picture_gpu.clock.now += 11
        assert (await asyncio.wait_for(stuck, 10)).pictures
        assert not on_gpu.pictures.works
        assert (await on_gpu.run(order_of(jpeg(1)), call())).pictures
        picture_gpu.decoder.gate.set()


async def test_a_decode_that_is_stuck_is_found_although_the_worker_has_lost_the_device(
    tmp_path: Path, picture_gpu: FakePictureGpu
) -> None:
    manifest = fake_manifest("photos", "inpaint")
    work, batcher = work_for(manifest, jpeg()), Batcher(BatchPolicy(8), time.monotonic)
    lost: Any = SimpleNamespace(device_lost=DeviceLost("the GPU context is lost"))
    supervisor = Supervisor(lambda: lost, lambda _: None, lambda: 0.0, 60.0)
    models = ModelRepository(tmp_path, lambda *_: None)  # type: ignore[arg-type,return-value]
    pictures = LocalPictures(batcher)
    backend = LocalBackend(Settings(), models, batcher, supervisor, Metrics(), pictures=pictures)
    backend.loaded.set()
    running = asyncio.create_task(backend.run_pictures(pictures, picture_gpu.open_lane_pool))
    await until(lambda: pictures.works)
    picture_gpu.decoder.hold()
    served = ServedModel(manifest, FakeEngine(manifest))
    stuck = asyncio.create_task(pictures.fill(work, served, SubmitOptions(time.monotonic() + 20)))
    await until(picture_gpu.decoder.waiting.is_set)
    picture_gpu.clock.now += 11
    with pytest.raises(PictureRefused, match="10 s"):
        await asyncio.wait_for(stuck, 5)
    running.cancel()
    picture_gpu.decoder.gate.set()
    pictures.close()


async def test_a_client_that_leaves_does_not_keep_its_place(
    pipeline: Callable[..., Any], picture_gpu: FakePictureGpu
) -> None:
    picture_gpu.lanes = picture_gpu.places = 1
    async with pipeline() as on_gpu:
        await until(lambda: on_gpu.pictures.works)
        picture_gpu.decoder.hold()
        leaving = asyncio.create_task(on_gpu.run(order_of(jpeg()), call()))
        await until(picture_gpu.decoder.waiting.is_set)
        leaving.cancel()
        await asyncio.sleep(0.01)
        picture_gpu.decoder.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        await until(lambda: not picture_gpu.pools[0].full)
        decoded = len(picture_gpu.decoder.batches)
        assert (await on_gpu.run(order_of(jpeg(1)), call())).pictures
        assert len(picture_gpu.decoder.batches) == decoded + 1


async def test_a_picture_that_finds_no_place_or_no_time_does_not_wait_in_a_lane(picture_gpu: FakePictureGpu) -> None:
    picture_gpu.lanes, picture_gpu.batch, picture_gpu.places = 1, 1, 2
    manifest = fake_manifest("photos", "inpaint")
    served, work = ServedModel(manifest, FakeEngine(manifest)), work_for(manifest, jpeg())
    pictures = LocalPictures(Batcher(BatchPolicy(8), time.monotonic))
    await pictures.open(picture_gpu.open_lane_pool)
    await until(lambda: not picture_gpu.pools[0].full)
    picture_gpu.decoder.hold()
    decoded = len(picture_gpu.decoder.batches)
    first = asyncio.create_task(pictures.fill(work, served, SubmitOptions(time.monotonic() + 20)))
    await until(picture_gpu.decoder.waiting.is_set)
    late = asyncio.create_task(pictures.fill(work, served, SubmitOptions(time.monotonic() + 0.05)))
    await asyncio.sleep(0)
    with pytest.raises(PictureRefused, match="as many pictures"):
        await pictures.fill(work, served, SubmitOptions(time.monotonic() + 20))
    with pytest.raises(DeadlineExceeded):
        await late
    first.cancel()
    picture_gpu.decoder.gate.set()
    await asyncio.to_thread(pictures.close)
    assert len(picture_gpu.decoder.batches) == decoded + 1


def work_for(manifest: Manifest, image: bytes) -> PictureWork:
    holes = np.zeros((90, 120), np.bool_)
    holes[0:20, 30:50] = True
    return work_on(image, holes, plan_crops(holes, manifest.size, "whole"), manifest)


async def test_a_picture_whose_model_is_let_go_as_its_client_leaves_is_ended(picture_gpu: FakePictureGpu) -> None:
    manifest = fake_manifest("photos", "inpaint")
    engine = FakeEngine(manifest)
    served, work = ServedModel(manifest, engine), work_for(manifest, jpeg())
    leases = LeaseCounter(served)
    assert leases.acquire()
    batcher = Batcher(BatchPolicy(8), time.monotonic)
    pictures = LocalPictures(batcher)
    await pictures.open(picture_gpu.open_lane_pool)
    options = SubmitOptions(time.monotonic() + 20)
    filling = asyncio.create_task(pictures.fill_into(new_arrays(work), work, served, options))
    await until(lambda: len(batcher) == 1)
    leases.retire()
    leases.release()  # as one message after another, before the picture's task sees that it is cancelled
    filling.cancel()
    batch = batcher.take(0) or []
    fail_entries(batch, ShuttingDown("nobody computes"))
    for entry in batch:
        entry.model.release()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(filling, 5)
    assert not leases.retain(), "the engine is closed"
    with pytest.raises(PictureRefused, match="loaded"):
        await pictures.fill_into(new_arrays(work), work, served, options)
    pictures.close()


async def test_a_lane_pool_that_opens_while_the_server_ends_is_closed(picture_gpu: FakePictureGpu) -> None:
    picture_gpu.decoder.gate.clear()  # the comparison with the CPU is under way
    pictures = LocalPictures(Batcher(BatchPolicy(8), time.monotonic))
    opening = asyncio.create_task(pictures.open(picture_gpu.open_lane_pool))
    await until(picture_gpu.decoder.waiting.is_set)
    opening.cancel()
    await asyncio.sleep(0)
    picture_gpu.decoder.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert picture_gpu.runtime.alive == 0
    assert not pictures.works
