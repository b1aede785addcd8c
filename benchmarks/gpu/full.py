"""The step of benchmarks/gpu/pipeline.py that fills the GPU and sends a full batch, which must be split."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.speed import job, settings_of
from engines.base import BatchShape
from engines.cuda.api import open_cuda
from retouch.bench.pipeline.run import DeviceRecorder, Workload
from retouch.bench.pipeline.variants import DEPTH, Variant
from service.app import open_pipeline
from service.batching.backend import OpenBackend
from service.batching.local_backend import open_local_backend
from service.core.call import Call
from service.core.settings import Settings
from service.devices.gpu_layout import lay_out_batch
from service.imaging.files.codec import decode
from service.pipeline import Pipeline

_MAX_ROOM_BYTES = 96 * 2**20
_TIMEOUT_S = 120.0


def full(bench: Bench) -> None:
    """Check that every request is answered, within one level of its result on a GPU with free memory."""
    work, recorder = job(bench, bench.arguments.max_batch), DeviceRecorder(Variant("full", overlap=DEPTH))
    facts = asyncio.run(_ask_twice(bench, work, recorder))
    bench.log_figures("full", **facts)
    assert facts["answered"] == facts["asked"]
    assert facts["rows_again"] > 0, "no batch was too large"
    assert facts["worst_level"] <= 1


async def _ask_twice(bench: Bench, work: Workload, recorder: DeviceRecorder) -> dict[str, Any]:
    """Send the requests on a GPU with memory for small batches only, and again with enough memory."""
    room = partial(open_local_backend, open_device=recorder.open)
    with TemporaryDirectory(prefix="retouch-full-") as folder:
        model = bench.arguments.model.absolute().parent
        (Path(folder) / model.name).symlink_to(model)
        settings = settings_of(bench).model_copy(
            update={"models_dir": Path(folder), "results_dir": Path(folder) / "own"}
        )
        shape = BatchShape(bench.arguments.max_batch, *bench.largest_tile)
        needed = sum(lay_out_batch(bench.manifest, shape).sizes[:3])
        return await _ask_in(settings, room, work, recorder, min(_MAX_ROOM_BYTES, needed // 3))


async def _ask_in(
    settings: Settings, room: OpenBackend, work: Workload, recorder: DeviceRecorder, room_bytes: int
) -> dict[str, Any]:
    async with open_pipeline(settings, room) as pipeline:
        cuda = open_cuda()
        free, _ = cuda.call_runtime("cudaMemGetInfo")
        ballast = cuda.device_buffer(free - room_bytes)
        try:
            crowded = await _ask_all(pipeline, work)
            shapes = [shape.batch for shape in recorder.batches]
        finally:
            ballast.close()
        roomy = await _ask_all(pipeline, work)
    levels = [_levels_off(a, b) for a, b in zip(crowded, roomy, strict=True)]
    return {
        "asked": len(work.images),
        "answered": sum(isinstance(body, bytes) for body in crowded),
        "errors": sorted({repr(body)[:160] for body in crowded if not isinstance(body, bytes)}),
        "free_mb": room_bytes >> 20,
        "batches": shapes,
        "rows_again": sum(shapes) - len(work.images),
        "worst_level": max(levels),
    }


def _levels_off(body: bytes | BaseException, wanted: bytes | BaseException) -> int:
    """Return the largest difference of two PNGs in levels (batch sizes round differently); 999 if one is missing."""
    if not isinstance(body, bytes) or not isinstance(wanted, bytes):
        return 999
    ours, theirs = (decode(file, max_pixels=10**9).pixels.astype(np.int16) for file in (body, wanted))
    return int(np.abs(ours - theirs).max())


async def _ask_all(pipeline: Pipeline, work: Workload) -> list[bytes | BaseException]:
    async def request_png(number: int) -> bytes:
        now = pipeline.clock()
        call = Call(f"full-{number}", now, now + _TIMEOUT_S)
        reply = await pipeline.run(work.order(number, "png", save=False), call)
        return reply.pictures[0].body

    return list(await asyncio.gather(*map(request_png, range(len(work.images))), return_exceptions=True))
