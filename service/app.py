"""Builds the parts of the server in one place, hands them to each other, and closes them in the reverse order."""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import structlog

from engines.base import BatchShape, Engine
from engines.load import EngineOptions, open_engine
from engines.manifest import Manifest
from engines.repository import ModelRepository
from service.admission import Admission
from service.batcher import Batcher, BatchPolicy, Entry
from service.budget import Budget
from service.codec_threads import CodecThreads
from service.device import CpuDevice
from service.devices import Device, RoutingDevice, SerialDevice
from service.drain import Drain
from service.gpu_device import StreamEngine, open_gpu_device
from service.gpu_layout import padded_sizes
from service.health import Vitals, unready_reasons
from service.jobs import Jobs
from service.metrics import Metrics
from service.pipeline import Pipeline
from service.saving.result_files import ResultFiles
from service.saving.spool import SpoolLimits
from service.saving.store import ResultStore
from service.settings import Settings
from service.worker import DeviceWorker, Supervisor

log = structlog.get_logger(__name__)

OpenEngine = Callable[[Path, Manifest], Engine]
OpenDevice = Callable[[], Device]
_SUPERVISE_EVERY_S = 0.1
_JOIN_TIMEOUT_S = 5.0
"""A worker that still computes after this is left behind: its thread is a daemon."""


@dataclass(slots=True, eq=False)
class Service:
    """The running server's parts, for routes and signals."""

    settings: Settings
    pipeline: Pipeline
    supervisor: Supervisor
    jobs: Jobs
    clock: Callable[[], float]
    new_id: Callable[[], str]
    loaded: asyncio.Event
    """Set once the model repository has been followed for the first time."""
    drain: Drain

    @property
    def admission(self) -> Admission:
        return self.pipeline.admission

    @property
    def repository(self) -> ModelRepository:
        return self.pipeline.repository

    @property
    def metrics(self) -> Metrics:
        return self.pipeline.metrics

    @property
    def store(self) -> ResultStore:
        return self.pipeline.store

    def unready_reasons(self) -> list[str]:
        """Why /readyz would answer 503 now; empty when ready."""
        draining, loaded = self.admission.draining.is_set(), self.loaded.is_set()
        return unready_reasons(Vitals(draining, loaded, self.supervisor.ready, self.repository.statuses()))

    def begin_draining(self) -> None:
        """Refuse new work from now on; what is inside is finished."""
        self.drain.begin()
        self.admission.draining.set()

    def cut_short(self) -> None:
        """The drain's time is over: answer everyone who still waits for the engine with 503."""
        self.drain.cut = self.admission.inside
        log.error("drain cut short", in_flight=self.drain.cut, waited_s=round(self.drain.waited_s, 1))
        self.pipeline.batcher.close()

    def end_without_device(self) -> None:
        """The device is lost to this process: answer everyone who waits for it with 503 and drain."""
        self.begin_draining()
        self.cut_short()

    async def scan_models(self) -> None:
        """Follow the model repository once."""
        await asyncio.to_thread(self.repository.scan)
        if not self.loaded.is_set():
            self.loaded.set()
            gc.collect()
            gc.freeze()  # models and modules stay for good: keep the collector out of the hot path


@asynccontextmanager
async def open_service(
    settings: Settings,
    open_model: OpenEngine | None = None,
    open_device: OpenDevice | None = None,
    only: Collection[str] | None = None,
) -> AsyncIterator[Service]:
    """A running service without HTTP; models are loading when it is handed out.

    Args:
        settings: all knobs.
        open_model: loads an engine; by default the one that the settings choose.
        open_device: what computes batches; by default whatever suits each engine.
        only: the names of the models to load; None for all.
    """
    async with AsyncExitStack() as stack:
        service = _build(settings, open_model or engine_opener(settings), open_device or _any_device, only, stack)
        for loop in (_follow_models(service), _supervise(service)):
            task = asyncio.create_task(loop)
            stack.push_async_callback(_cancelled, task)
        yield service


@asynccontextmanager
async def open_pipeline(
    settings: Settings,
    open_model: OpenEngine | None = None,
    open_device: OpenDevice | None = None,
    only: Collection[str] | None = None,
) -> AsyncIterator[Pipeline]:
    """The pipeline with its models loaded, to be used without a server."""
    async with open_service(settings, open_model, open_device, only) as service:
        await service.loaded.wait()
        yield service.pipeline


def _build(
    settings: Settings,
    open_model: OpenEngine,
    open_device: OpenDevice,
    only: Collection[str] | None,
    stack: AsyncExitStack,
) -> Service:
    clock, metrics = time.monotonic, Metrics()
    codec_threads = CodecThreads(settings.codec_threads or os.cpu_count() or 1)
    stack.callback(codec_threads.close)
    limits = SpoolLimits(settings.spool_max_items, int(settings.spool_max_mb * 2**20))
    store = ResultStore(ResultFiles(settings.results_dir), limits, threads=settings.save_threads, observer=metrics)
    store.start()
    drain = Drain(settings.drain_timeout_s, clock)
    stack.push_async_callback(_flush, store, drain)
    warm_up_shapes = partial(_warm_up_shapes, settings)
    repository = ModelRepository(settings.models_dir, open_model, warm_up_shapes=warm_up_shapes, only=only)
    stack.callback(repository.close)
    batcher = Batcher(BatchPolicy(settings.max_batch_size), clock)
    supervisor = Supervisor(
        start_worker=partial(_start_worker, batcher, open_device, metrics, clock),
        reload_engine=partial(_reload_engine, repository),
        clock=clock,
        hang_timeout_s=settings.hang_timeout_s,
    )
    stack.push_async_callback(_join, supervisor)
    stack.callback(batcher.close)
    pipeline = Pipeline(
        settings=settings,
        repository=repository,
        batcher=batcher,
        store=store,
        admission=Admission(settings.max_queue_size, settings.max_uploads, lambda: codec_threads.predicted_wait_s),
        metrics=metrics,
        codec_threads=codec_threads,
        decoded=Budget(int(settings.max_decoded_mb * 2**20)),
        clock=clock,
        new_id=_new_id,
        new_seed=_new_seed,
    )
    jobs = Jobs(
        settings.max_jobs,
        settings.job_ttl_s,
        clock,
        lambda: datetime.now(timezone.utc),
        _new_id,
        pipeline.admission.retry_after_s,
    )
    service = Service(settings, pipeline, supervisor, jobs, clock, _new_id, asyncio.Event(), drain)
    _watch(service)
    return service


def engine_opener(settings: Settings) -> OpenEngine:
    """Loads the engines that the settings choose."""
    options = EngineOptions(
        choice=settings.engine,
        threads=settings.engine_threads,
        cache_dir=settings.engine_cache_dir,
        fake_batch_s=settings.fake_batch_ms / 1e3,
        max_batch=settings.max_batch_size,
    )
    return lambda directory, manifest: open_engine(directory, manifest, options)


def _warm_up_shapes(settings: Settings, engine: Engine) -> list[BatchShape]:
    """So that no first request pays for them: every shape that is sent to an engine on a GPU's streams.

    Of the others, whose shapes cost less to begin with and more to run: every tile size once, and the largest batch.
    """
    buckets, manifest = list(engine.manifest.size.buckets()), engine.manifest
    largest = min(settings.max_batch_size, manifest.max_batch)
    if isinstance(engine, StreamEngine):
        return [BatchShape(rows, *bucket) for bucket in buckets for rows in padded_sizes(largest)]
    return [*(BatchShape(1, *bucket) for bucket in buckets), BatchShape(largest, *min(buckets))]


def _any_device() -> Device:
    return RoutingDevice(SerialDevice(CpuDevice()), open_gpu_device)


def _start_worker(
    batcher: Batcher, open_device: OpenDevice, metrics: Metrics, clock: Callable[[], float]
) -> DeviceWorker:
    worker = DeviceWorker(batcher, open_device(), metrics, clock)
    worker.start()
    return worker


def _reload_engine(repository: ModelRepository, entry: Entry) -> None:
    manifest = entry.model.manifest
    try:
        repository.reload(manifest.name, manifest.version, instead_of=entry.model.engine)
    except Exception:  # the old engine stays; the next batch shows whether it works, the supervisor lives on
        log.exception("engine could not be reloaded", model=manifest.key)


def _watch(service: Service) -> None:
    """Gauges read the state when they are scraped."""
    metrics = service.metrics
    metrics.queue_depth.set_function(lambda: len(service.pipeline.batcher))
    metrics.in_flight.set_function(lambda: service.admission.inside)
    metrics.spool_items.set_function(lambda: service.store.pending)
    metrics.spool_bytes.set_function(lambda: service.store.pending_bytes)
    metrics.spool_oldest.set_function(lambda: service.store.oldest_age_s)
    metrics.ready.set_function(lambda: not service.unready_reasons())


async def _follow_models(service: Service) -> None:
    while True:
        try:
            await service.scan_models()
        except Exception:  # a folder that cannot be read now may be readable later; what is loaded serves on
            log.exception("model repository could not be read")
        await asyncio.sleep(service.settings.model_poll_s)


async def _supervise(service: Service) -> None:
    while True:
        await asyncio.sleep(_SUPERVISE_EVERY_S)
        if not service.supervisor.ready and await asyncio.to_thread(service.supervisor.check):
            service.metrics.worker_restarts.inc()
        if service.supervisor.device_lost is not None:
            service.end_without_device()
            return


async def _flush(store: ResultStore, drain: Drain) -> None:
    flush_s = drain.flush_s
    drain.unsaved = await asyncio.to_thread(store.flush, flush_s)
    if drain.unsaved:
        log.error("results not saved in time", left=drain.unsaved, waited_s=flush_s)
    await asyncio.to_thread(store.close)


async def _join(supervisor: Supervisor) -> None:
    await asyncio.to_thread(supervisor.worker.join, _JOIN_TIMEOUT_S)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _new_id() -> str:
    return uuid.uuid4().hex


def _new_seed() -> int:
    """Short enough to be read out, and exact as a number in JSON everywhere."""
    return secrets.randbits(32)
