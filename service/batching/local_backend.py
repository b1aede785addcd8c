"""The backend that computes in this process: models, queue, device worker, and its supervisor.

It runs in the server's process, or with `--workers` in an engine process behind shared memory.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import structlog

from engines.base import BatchShape, Engine, WarmUpShapes, warm_up_engine
from engines.cpu.lanes import LaneEngine
from engines.engine_choice import EngineOptions, open_engine
from engines.errors import DeviceLost
from engines.fake import FAULT_FILE
from engines.load_report import LoadReport
from engines.manifest import Manifest
from engines.repository.listing import list_versions, why_empty
from engines.repository.repository import ModelRepository
from service.admission.server_load import ServerLoad, SingleFrontEndLoad
from service.batching.batcher import Batcher, BatchPolicy, Entry
from service.batching.supervisor import Supervisor
from service.batching.worker import BatchTraces, DeviceWorker
from service.core.settings import Settings
from service.devices.contract import Device, PerEngineDevice, SerialDevice
from service.devices.cpu import CpuDevice
from service.devices.cpu_lanes import LaneDevice
from service.devices.gpu import StreamEngine, open_gpu_device
from service.devices.gpu_layout import padded_batch_sizes
from service.lifecycle.background import cancel_and_wait
from service.lifecycle.default_versions import unserved_defaults
from service.telemetry.metrics import Metrics
from service.telemetry.tracing import open_batch_tracer

log = structlog.get_logger(__name__)

OpenEngine = Callable[[Path, Manifest], Engine]
OpenDevice = Callable[[Callable[[], None]], Device]
"""Opens the device; its argument is called, on any thread, when a batch was computed."""
_EMPTY_HINT = (
    "pass another folder with --models-dir, or export a model with `retouch export`; the folder is checked regularly"
)
_SUPERVISE_INTERVAL_S = 0.1
_JOIN_TIMEOUT_S = 5.0
"""Seconds to wait at shutdown for the worker, whose thread is a daemon and does not keep the process alive."""


@dataclass(slots=True, eq=False)
class LocalBackend:
    """Models, queue and device worker of this process."""

    settings: Settings
    models: ModelRepository
    batcher: Batcher
    supervisor: Supervisor
    metrics: Metrics
    own_process: bool = False
    """Whether this is an engine process: it ends when its worker hangs, instead of starting another thread."""
    serves: bool = True
    """Whether all models are served; False for a command, which loads only the models that it needs."""
    misnamed: set[Path] = field(default_factory=set)
    """The folders with a model that were not served at the last scan because of their names."""
    loaded: asyncio.Event = field(default_factory=asyncio.Event)
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    server_load: ServerLoad = field(default_factory=SingleFrontEndLoad)
    report: LoadReport = field(default_factory=LoadReport)

    @property
    def loading(self) -> str:
        return self.report.describe()

    @property
    def ready(self) -> bool:
        return self.supervisor.ready

    async def scan(self) -> None:
        """Load and unload models to match the models folder."""
        await asyncio.to_thread(self.models.scan)
        if self.serves:
            self._log_misnamed(self.models.misnamed)
        self.metrics.models_loaded(
            frozenset(
                (f"{status.name}/{status.version}", status.engine, status.precision)
                for status in self.models.statuses()
                if status.engine and status.precision
            )
        )
        if not self.loaded.is_set():
            self.loaded.set()
            if (reason := why_empty(self.settings.models_dir)) is not None:
                log.warning(
                    "no models", folder=str(self.settings.models_dir.absolute()), reason=reason, to_do=_EMPTY_HINT
                )
            elif self.serves:
                self._log_unserved_defaults()
            gc.collect()
            gc.freeze()  # models and modules are permanent: the garbage collector need not traverse them

    def _log_misnamed(self, misnamed: Mapping[Path, str]) -> None:
        for folder in sorted(set(misnamed) - self.misnamed):
            log.warning("folder is not served", folder=str(folder.absolute()), reason=misnamed[folder])
        self.misnamed = set(misnamed)

    def _log_unserved_defaults(self) -> None:
        statuses = self.models.statuses()
        for setting, model in unserved_defaults(self.settings, statuses).items():
            log.warning(
                "default model is not served",
                setting=setting,
                model=model,
                models=[f"{status.name}/{status.version}" for status in statuses if status.state != "refused"],
                to_do=f"pass a served model with --{setting.replace('_', '-')}; requests without a model are refused",
            )

    async def follow_models(self) -> None:
        """Scan the models folder every `model_poll_s`, until cancelled."""
        while True:
            try:
                await self.scan()
            except DeviceLost:  # `supervise` ends the process
                log.exception("device lost while a model was loaded")
                return
            except Exception:  # the folder may be readable later; loaded models are served meanwhile
                log.exception("model repository could not be read")
            await asyncio.sleep(self.settings.model_poll_s)

    async def supervise(self) -> None:
        """Replace workers that die or hang, until the worker has lost the device.

        It continues when only the model loader has lost the device, because the worker may have batches to answer.
        """
        while self.supervisor.device_lost is None:
            await asyncio.sleep(_SUPERVISE_INTERVAL_S)
            state = self.supervisor.state  # read once, because the worker may begin to hang between two reads
            if self.own_process and self.supervisor.needs_new_process(state):
                self.lost.set()
                return
            try:
                if state not in ("idle", "busy") and await asyncio.to_thread(self.supervisor.check, state):
                    self.metrics.worker_restarts.inc()
            except Exception:  # such as no thread left to start: the next check tries again
                log.exception("the device worker could not be replaced; retrying")
            if (self.supervisor.device_lost or self.models.device_lost) is not None:
                self.lost.set()


@asynccontextmanager
async def open_local_backend(  # noqa: PLR0913 -- each is a choice of its own
    settings: Settings,
    metrics: Metrics,
    open_model: OpenEngine | None = None,
    open_device: OpenDevice | None = None,
    only: Collection[str] | None = None,
    *,
    own_process: bool = False,
    warm_up: bool = True,
    report: LoadReport | None = None,
) -> AsyncIterator[LocalBackend]:
    """Open a backend in this process; models are still loading when the block begins.

    Args:
        settings: the server's settings.
        metrics: counts batches and restarts of the worker.
        open_model: loads an engine, which is then warmed up; by default the one that the settings choose.
        open_device: opens the device that computes batches; by default the one that suits each engine.
        only: names of the models to load; None for all.
        own_process: whether this is an engine process; `lost` is then also set when the worker hangs.
        report: receives the progress of loading; by default one that is logged.
        warm_up: whether engines on a CPU are warmed up; those on a GPU always are, because they compile for each shape.
    """
    clock = time.monotonic
    shapes = partial(warm_up_shapes if warm_up else _gpu_warm_up_shapes, settings)
    async with AsyncExitStack() as stack:
        report = report or LoadReport(log=lambda progress: log.info("model loading", progress=progress))
        names = {key.name for key in list_versions(settings.models_dir)}
        report.expect(len(names if only is None else names & set(only)))
        opener = _with_warm_up(open_model, shapes) if open_model else make_engine_opener(settings, shapes, report)
        defaults = [reference.partition("/")[0] for reference in settings.default_models.values()]
        models = ModelRepository(settings.models_dir, opener, only=only, first=defaults)
        stack.callback(models.close)
        batcher = Batcher(BatchPolicy(settings.max_batch_size), clock)
        metrics.watch(metrics.queue_depth, batcher.__len__)
        traces = await stack.enter_async_context(open_batch_tracer(settings))
        supervisor = Supervisor(
            start_worker=partial(_start_worker, batcher, open_device or make_routing_device, metrics, clock, traces),
            reload_engine=partial(_reload_engine, models),
            clock=clock,
            hang_timeout_s=settings.hang_timeout_s,
        )
        stack.push_async_callback(_join_worker, supervisor)
        stack.callback(batcher.close)
        backend = LocalBackend(settings, models, batcher, supervisor, metrics, own_process, only is None, report=report)
        for loop in (backend.follow_models(), backend.supervise()):
            stack.push_async_callback(cancel_and_wait, asyncio.create_task(loop))
        stack.callback(report.stop)  # else the process, which waits for the loader's thread, would load the rest first
        yield backend


def make_engine_opener(
    settings: Settings, shapes: WarmUpShapes = lambda _: (), report: LoadReport | None = None
) -> OpenEngine:
    """Return a function that loads the engine that the settings choose, from those with memory for the shapes."""
    report = report or LoadReport()
    options = EngineOptions(
        choice=settings.engine,
        threads=settings.engine_threads,
        cache_dir=settings.engine_cache_dir,
        fake_batch_s=settings.fake_batch_ms / 1e3,
        fake_faults=settings.engine_cache_dir / FAULT_FILE,
        max_batch=settings.max_batch_size,
        trt_level=settings.trt_level,
        int8=settings.allow_int8,
        device=settings.device,
        notify=report.step,
    )

    def opened(directory: Path, manifest: Manifest) -> Engine:
        with report.loading(manifest.key):
            log.info("model loading", model=manifest.key)  # takes seconds on a CPU, minutes where a plan is built
            return open_engine(directory, manifest, options, shapes)

    return opened


def _with_warm_up(open_model: OpenEngine, shapes: WarmUpShapes) -> OpenEngine:
    return lambda directory, manifest: warm_up_engine(open_model(directory, manifest), shapes)


def warm_up_shapes(settings: Settings, engine: Engine) -> list[BatchShape]:
    """The shapes to compute once at start, so that the first requests are not slower than the later ones.

    An engine on CUDA streams: every shape that is sent to it. Other engines prepare little for each shape: with lanes,
    one row and as many rows as lanes, of every tile size; without lanes, one row of every tile size, and the largest
    batch of the smallest tile.
    """
    tiles, manifest = list(engine.manifest.size.tile_sizes()), engine.manifest
    largest = min(settings.max_batch_size, manifest.max_batch)
    if isinstance(engine, StreamEngine):
        return [BatchShape(rows, *tile) for tile in tiles for rows in padded_batch_sizes(largest)]
    if isinstance(engine, LaneEngine) and engine.lanes > 1:
        return [BatchShape(rows, *tile) for tile in tiles for rows in (1, engine.lanes)]
    return [*(BatchShape(1, *tile) for tile in tiles), BatchShape(largest, *min(tiles))]


def _gpu_warm_up_shapes(settings: Settings, engine: Engine) -> list[BatchShape]:
    return [] if engine.device == "cpu" else warm_up_shapes(settings, engine)


def make_routing_device(
    wake: Callable[[], None], open_overlapping: Callable[[Engine], Device | None] = open_gpu_device
) -> PerEngineDevice:
    """A device that suits each engine: CUDA streams of a GPU, lanes of a CPU, or one batch at a time.

    Args:
        wake: called, on any thread, when a batch on a lane was computed.
        open_overlapping: opens the device that overlaps an engine's batches on a GPU; see `PerEngineDevice`.
    """
    open_lanes = partial(LaneDevice, wake=wake, clock=time.monotonic)
    return PerEngineDevice(SerialDevice(CpuDevice()), open_overlapping, open_lanes)


def _start_worker(
    batcher: Batcher,
    open_device: OpenDevice,
    metrics: Metrics,
    clock: Callable[[], float],
    traces: BatchTraces | None,
) -> DeviceWorker:
    worker = DeviceWorker(batcher, open_device(batcher.wake), metrics, clock, traces)
    worker.start()
    return worker


def _reload_engine(models: ModelRepository, entry: Entry) -> None:
    manifest = entry.model.manifest
    try:
        models.reload(manifest.name, manifest.version, instead_of=entry.model.engine)
    except Exception:  # the old engine stays and the next batch shows whether it works; the supervisor must not end
        log.exception("engine could not be reloaded", model=manifest.key)


async def _join_worker(supervisor: Supervisor) -> None:
    await asyncio.to_thread(supervisor.worker.join, _JOIN_TIMEOUT_S)
