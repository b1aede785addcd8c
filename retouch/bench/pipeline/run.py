"""Measures one variant of the pipeline: from encoded bytes to encoded bytes, in this process, without HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from engines.base import BatchShape, Engine
from engines.errors import RetouchError
from engines.manifest import Manifest
from retouch.bench.pipeline.variants import Variant
from service.app import open_pipeline
from service.batching.local_backend import any_device, engine_opener, open_local_backend
from service.core.items import Call, Reply, Sample
from service.core.schemas import InpaintOptions, TranslateOptions
from service.core.settings import Settings
from service.devices.contract import Device, Ticket, Tiles
from service.devices.gpu import GpuDevice, open_gpu_device
from service.devices.gpu_layout import batch_shape_of
from service.pipeline import Pipeline

_PATIENCE_S = 600.0
_AT_ONCE = 4
"""Full batches that are inside at once, where as many as possible are."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is worked off: pictures (encoded), with their masks for inpainting, by one model."""

    model: str
    images: Sequence[bytes]
    masks: Sequence[bytes] | None
    warm_up: int = 8
    """Pictures before the clock starts."""


@dataclass(frozen=True, slots=True)
class Row:
    """One variant measured, or why it was not."""

    name: str
    reason: str = ""
    pictures: int = 0
    total_ms: float = 0.0
    """From the first request to the last reply."""
    durable_ms: float = 0.0
    """To the last file on the disk."""
    p50_ms: float = 0.0
    batches: int = 0
    gpu_busy: float | None = None
    """Share of the total in which the engine computed, by CUDA events; None without them."""
    tile: tuple[int, int] = (0, 0)

    @property
    def images_per_s(self) -> float:
        return self.pictures / self.total_ms * 1e3 if self.total_ms else 0.0

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {**asdict(self), "images_per_s": round(self.images_per_s, 2)}


@dataclass(slots=True)
class Watch:
    """What a device did; it is the device of one variant."""

    variant: Variant
    batches: list[BatchShape] = field(default_factory=list)
    gpus: list[GpuDevice] = field(default_factory=list)

    def open(self, wake: Callable[[], None]) -> Device:
        """What the variant computes on."""
        return _Watched(any_device(wake, self._open_gpu), self.batches)

    @property
    def busy_s(self) -> float:
        return sum(gpu.busy_s for gpu in self.gpus)

    def _open_gpu(self, engine: Engine) -> Device | None:
        device = open_gpu_device(engine, self.variant.overlap) if self.variant.overlap else None
        if device is not None:
            self.gpus.append(device)
        return device


@dataclass(frozen=True)
class _Watched(Device):
    """Notes the shape of every batch."""

    device: Device
    batches: list[BatchShape]

    @property
    def depth(self) -> int:  # type: ignore[override] # of what is open by now
        return self.device.depth

    @property
    def poll_s(self) -> float:  # type: ignore[override] # as above
        return self.device.poll_s

    def batch_rows(self, engine: Engine, first: Sample, most: int, waiting: int) -> int:
        return self.device.batch_rows(engine, first, most, waiting)

    def launch(self, engine: Engine, samples: Sequence[Sample]) -> Ticket:
        self.batches.append(batch_shape_of(samples))
        return self.device.launch(engine, samples)

    def collect(self, ticket: Ticket) -> Tiles:
        return self.device.collect(ticket)

    def close(self) -> None:
        self.device.close()


def measure(settings: Settings, job: Job, variant: Variant, now: Callable[[], float] = time.perf_counter) -> Row:
    """Open a service of its own for the variant, warm it up, and work the job off.

    Raises:
        RetouchError: the model cannot be served, or a picture failed.
    """
    return asyncio.run(_measure(settings, job, variant, now))


async def _measure(settings: Settings, job: Job, variant: Variant, now: Callable[[], float]) -> Row:
    watch = Watch(variant)
    async with _opened(settings, job, watch) as pipeline:
        together = variant.together or _AT_ONCE * settings.max_batch_size
        worker = _Worker(pipeline, job, variant, now)
        for warm_up in range(3 if variant.together == 0 else 1):  # as many as make batches of every size
            await worker.work(range(warm_up, warm_up + max(job.warm_up, min(together, len(job.images)))), together)
        await asyncio.to_thread(pipeline.store.flush, _PATIENCE_S)
        watch.batches.clear()
        busy_before, started = watch.busy_s, now()
        latencies = await worker.work(range(len(job.images)), together)
        replied = now()
        await asyncio.to_thread(pipeline.store.flush, _PATIENCE_S)
        durable, busy_s = now(), watch.busy_s - busy_before
    return Row(
        variant.name,
        pictures=len(job.images),
        total_ms=(replied - started) * 1e3,
        durable_ms=(durable - started) * 1e3,
        p50_ms=sorted(latencies)[len(latencies) // 2] * 1e3,
        batches=len(watch.batches),
        gpu_busy=busy_s / (replied - started) if watch.gpus else None,
        tile=(watch.batches[0].height, watch.batches[0].width),
    )


@dataclass(frozen=True, slots=True)
class _Worker:
    pipeline: Pipeline
    job: Job
    variant: Variant
    now: Callable[[], float]

    async def work(self, numbers: Sequence[int], together: int) -> list[float]:
        """Seconds that each picture took, by its own clock, with at most `together` inside."""
        room = asyncio.Semaphore(together)

        async def one(number: int) -> float:
            async with room:
                started = self.now()
                await self._ask(number % len(self.job.images))
                if self.variant.saving == "in line":
                    await asyncio.to_thread(self.pipeline.store.flush, _PATIENCE_S)
                return self.now() - started

        return list(await asyncio.gather(*map(one, numbers)))

    async def _ask(self, number: int) -> Reply:
        arrived = self.pipeline.clock()
        call = Call(f"bench-{number}", arrived, arrived + _PATIENCE_S)
        save = self.variant.saving != "none"
        image = self.job.images[number]
        options = {"model": self.job.model, "format": "jpeg", "save": save}
        if self.job.masks is None:
            return await self.pipeline.translate(image, TranslateOptions.model_validate(options), call)
        mask = self.job.masks[number % len(self.job.masks)]
        return await self.pipeline.inpaint(image, mask, InpaintOptions.model_validate(options), call)


@asynccontextmanager
async def _opened(settings: Settings, job: Job, watch: Watch) -> AsyncIterator[Pipeline]:
    """The pipeline with the job's model alone, results in a folder that is removed."""
    variant = watch.variant
    with TemporaryDirectory(prefix="retouch-bench-") as folder:
        own = _own_settings(settings, job, variant, Path(folder))
        open_engine = engine_opener(settings)  # with its own batch size: each variant runs the same engine

        def open_model(directory: Path, manifest: Manifest) -> Engine:
            engine = open_engine(directory, manifest)
            if (use_graphs := getattr(engine, "use_graphs", None)) is not None:
                use_graphs(variant.graphs)
            return engine

        async with open_pipeline(
            own, partial(open_local_backend, open_model=open_model, open_device=watch.open)
        ) as pipeline:
            refused = [status.reason for status in pipeline.models.statuses() if status.reason]
            if refused:
                raise RetouchError(f"{job.model} cannot be served: {refused[0]}")
            yield pipeline


def _own_settings(settings: Settings, job: Job, variant: Variant, folder: Path) -> Settings:
    name = job.model.partition("/")[0]
    alone = folder / "models"
    alone.mkdir()
    (alone / name).symlink_to((settings.models_dir / name).absolute())
    changed = {
        "models_dir": alone,
        "results_dir": folder / "results",
        "spool_max_items": 4 * len(job.images) + 64,
        "max_batch_size": settings.max_batch_size if variant.batched else 1,
    }
    return settings.model_copy(update=changed)
