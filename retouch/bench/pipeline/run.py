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
from engines.manifest import Manifest, Task
from retouch.bench.pipeline.variants import Variant
from service.app import open_pipeline
from service.batching.local_backend import OpenEngine, make_engine_opener, make_routing_device, open_local_backend
from service.core.batch_rows import Sample
from service.core.call import Call
from service.core.order import Order
from service.core.pictures import ImageFormat
from service.core.reply import Reply
from service.core.schemas import OPTIONS
from service.core.settings import Settings
from service.devices.contract import Device, Ticket, Tiles
from service.devices.gpu import GpuDevice, open_gpu_device
from service.devices.gpu_layout import batch_shape_of
from service.pipeline import Pipeline

_TIMEOUT_S = 600.0
_BATCHES_IN_PIPELINE = 4
"""The number of full batches of pictures in the pipeline at once, for variants without a limit of their own."""
EngineOpener = Callable[[Settings], OpenEngine]
OpenGpu = Callable[[Engine, int], GpuDevice | None]


@dataclass(frozen=True, slots=True)
class Workload:
    """The input of a measurement: encoded pictures, with masks for inpainting, and the model."""

    model: str
    images: Sequence[bytes]
    masks: Sequence[bytes] | None
    warm_up: int = 8
    """Pictures computed before the measurement starts."""

    def order(self, number: int, file_format: ImageFormat, *, save: bool) -> Order:
        """Return the order for the picture of that number."""
        task: Task = "translate" if self.masks is None else "inpaint"
        files = {"image": self.images[number]}
        if self.masks is not None:
            files["mask"] = self.masks[number % len(self.masks)]
        options = {"model": self.model, "format": file_format, "save": save}
        return Order(task, files, OPTIONS[task].model_validate(options))


@dataclass(frozen=True, slots=True)
class VariantResult:
    """The measurement of one variant, or the reason why there is none."""

    name: str
    reason: str = ""
    pictures: int = 0
    total_ms: float = 0.0
    """Time from the first request to the last reply."""
    durable_ms: float = 0.0
    """Time from the first request until the last file is on the disk."""
    p50_ms: float = 0.0
    batches: int = 0
    gpu_busy: float | None = None
    """Share of the total time in which the GPU computed, by CUDA events; None without them."""
    tile: tuple[int, int] = (0, 0)

    @property
    def images_per_s(self) -> float:
        return self.pictures / self.total_ms * 1e3 if self.total_ms else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object for `--json`."""
        return {**asdict(self), "images_per_s": round(self.images_per_s, 2)}


@dataclass(slots=True)
class DeviceRecorder:
    """Opens the device of one variant and records its batches and GPU time."""

    variant: Variant
    open_gpu: OpenGpu = open_gpu_device
    batches: list[BatchShape] = field(default_factory=list)
    gpus: list[GpuDevice] = field(default_factory=list)

    def open(self, wake: Callable[[], None]) -> Device:
        """Open the device that the variant computes on."""
        return _RecordedDevice(make_routing_device(wake, self._open_gpu), self.batches)

    @property
    def busy_s(self) -> float:
        return sum(gpu.busy_s for gpu in self.gpus)

    def _open_gpu(self, engine: Engine) -> Device | None:
        device = self.open_gpu(engine, self.variant.overlap) if self.variant.overlap else None
        if device is not None:
            self.gpus.append(device)
        return device


@dataclass(frozen=True)
class _RecordedDevice(Device):
    """A device that records the shape of every batch."""

    device: Device
    batches: list[BatchShape]

    @property
    def depth(self) -> int:  # type: ignore[override] # delegates
        return self.device.depth

    @property
    def poll_s(self) -> float:  # type: ignore[override] # delegates
        return self.device.poll_s

    def batch_rows(self, engine: Engine, first: Sample, max_rows: int, waiting: int) -> int:
        return self.device.batch_rows(engine, first, max_rows, waiting)

    def launch(self, engine: Engine, samples: Sequence[Sample]) -> Ticket:
        self.batches.append(batch_shape_of(samples))
        return self.device.launch(engine, samples)

    def collect(self, ticket: Ticket) -> Tiles:
        return self.device.collect(ticket)

    def close(self) -> None:
        self.device.close()


def measure(
    settings: Settings,
    workload: Workload,
    variant: Variant,
    now: Callable[[], float] = time.perf_counter,
    opener: EngineOpener = make_engine_opener,
    open_gpu: OpenGpu = open_gpu_device,
) -> VariantResult:
    """Open a pipeline for the variant, warm it up, and process all pictures.

    Args:
        settings: the settings of the pipeline; the variant replaces some.
        workload: the pictures and the model.
        variant: the configuration to measure.
        now: returns seconds.
        opener: returns the function that opens engines.
        open_gpu: opens the device that overlaps the batches of an engine.

    Raises:
        RetouchError: the model cannot be served, or a picture failed.
    """
    return asyncio.run(_measure(settings, workload, DeviceRecorder(variant, open_gpu), now, opener))


async def _measure(
    settings: Settings, workload: Workload, recorder: DeviceRecorder, now: Callable[[], float], opener: EngineOpener
) -> VariantResult:
    variant = recorder.variant
    async with _open_variant(settings, workload, recorder, opener) as pipeline:
        concurrency = variant.concurrency or _BATCHES_IN_PIPELINE * settings.max_batch_size
        worker = _Client(pipeline, workload, variant, now)
        # without a limit, three rounds produce batches of every size
        for warm_up in range(3 if variant.concurrency == 0 else 1):
            await worker.process(
                range(warm_up, warm_up + max(workload.warm_up, min(concurrency, len(workload.images)))), concurrency
            )
        await asyncio.to_thread(pipeline.store.flush, _TIMEOUT_S)
        recorder.batches.clear()
        busy_before, started = recorder.busy_s, now()
        latencies = await worker.process(range(len(workload.images)), concurrency)
        replied = now()
        await asyncio.to_thread(pipeline.store.flush, _TIMEOUT_S)
        durable, busy_s = now(), recorder.busy_s - busy_before
    return VariantResult(
        variant.name,
        pictures=len(workload.images),
        total_ms=(replied - started) * 1e3,
        durable_ms=(durable - started) * 1e3,
        p50_ms=sorted(latencies)[len(latencies) // 2] * 1e3,
        batches=len(recorder.batches),
        gpu_busy=busy_s / (replied - started) if recorder.gpus else None,
        tile=(recorder.batches[0].height, recorder.batches[0].width),
    )


@dataclass(frozen=True, slots=True)
class _Client:
    pipeline: Pipeline
    workload: Workload
    variant: Variant
    now: Callable[[], float]

    async def process(self, numbers: Sequence[int], concurrency: int) -> list[float]:
        """Process the pictures with these numbers, at most `concurrency` at once; returns the seconds of each."""
        room = asyncio.Semaphore(concurrency)

        async def one(number: int) -> float:
            async with room:
                started = self.now()
                await self._request_one(number % len(self.workload.images))
                if self.variant.saving == "in line":
                    await asyncio.to_thread(self.pipeline.store.flush, _TIMEOUT_S)
                return self.now() - started

        return list(await asyncio.gather(*map(one, numbers)))

    async def _request_one(self, number: int) -> Reply:
        arrived = self.pipeline.clock()
        call = Call(f"bench-{number}", arrived, arrived + _TIMEOUT_S)
        save = self.variant.saving != "none"
        return await self.pipeline.run(self.workload.order(number, "jpeg", save=save), call)


@asynccontextmanager
async def _open_variant(
    settings: Settings, workload: Workload, recorder: DeviceRecorder, opener: EngineOpener
) -> AsyncIterator[Pipeline]:
    """Open a pipeline with the workload's model alone, and a temporary folder for results."""
    variant = recorder.variant
    with TemporaryDirectory(prefix="retouch-bench-") as folder:
        own = _variant_settings(settings, workload, variant, Path(folder))
        # keeps the configured batch size, so that each variant runs the same engine
        open_engine = opener(settings)

        def open_model(directory: Path, manifest: Manifest) -> Engine:
            engine = open_engine(directory, manifest)
            if (use_graphs := getattr(engine, "use_graphs", None)) is not None:
                use_graphs(variant.graphs)
            return engine

        async with open_pipeline(
            own, partial(open_local_backend, open_model=open_model, open_device=recorder.open)
        ) as pipeline:
            refused = [status.reason for status in pipeline.models.statuses() if status.reason]
            if refused:
                raise RetouchError(f"{workload.model} cannot be served: {refused[0]}")
            yield pipeline


def _variant_settings(settings: Settings, workload: Workload, variant: Variant, folder: Path) -> Settings:
    name = workload.model.partition("/")[0]
    alone = folder / "models"
    alone.mkdir()
    (alone / name).symlink_to((settings.models_dir / name).absolute())
    changed = {
        "models_dir": alone,
        "results_dir": folder / "results",
        "spool_max_items": 32 * len(workload.images) + 512,
        "max_batch_size": settings.max_batch_size if variant.batched else 1,
    }
    return settings.model_copy(update=changed)
