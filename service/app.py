"""Builds the parts of the server, connects them, and closes them in the reverse order."""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import structlog

from engines.errors import DeviceLost
from service.admission.admission import Admission
from service.admission.assembly import make_admission
from service.admission.long_work import LongWork
from service.admission.loop_lag import LoopLag
from service.admission.memory_budget import MemoryBudget
from service.auth.clients import Clients
from service.auth.links import Links, open_links
from service.batching.backend import Backend, BackendModels, OpenBackend
from service.batching.local_backend import open_local_backend
from service.core.call import Call
from service.core.order import Order
from service.core.reply import Reply
from service.core.setting_groups import SERVER_ONLY
from service.core.settings import Settings
from service.fleet.assembly import open_state
from service.gallery.assembly import Gallery, open_gallery
from service.imaging.pool.codec_work import CodecWork
from service.imaging.texture.patch_match import installed_kernel
from service.jobs.assembly import open_jobs
from service.jobs.jobs import Jobs
from service.jobs.name_lookup import NameLookup
from service.lifecycle.background import cancel_and_wait, wait_for_any
from service.lifecycle.drain import Drain
from service.lifecycle.health import Outage, ReadinessState, serving_names, storage_reasons, unready_reasons
from service.lifecycle.host import keep_freed_memory, shorten_switch_interval, usable_cores
from service.pipeline import Pipeline
from service.remote_models.assembly import following_models
from service.repeats.assembly import open_idempotency
from service.repeats.earlier_results import EarlierResults
from service.repeats.idempotency import Idempotency
from service.repeats.result_cache import ResultCache
from service.saving.assembly import make_promise
from service.saving.reader import ResultReader
from service.saving.spool.process_folder import SpoolOwner
from service.saving.store import ResultStore
from service.telemetry.metrics import Metrics
from service.telemetry.tracing import RequestTracer, open_request_tracer

log = structlog.get_logger(__name__)

_POLL_INTERVAL_S = 0.1

Run = Callable[[Order, Call], Coroutine[Any, Any, Reply]]


@dataclass(slots=True, eq=False)
class Service:
    """The parts of the running server, for routes and signal handlers."""

    settings: Settings
    pipeline: Pipeline
    run: Run
    """Computes an order: the pipeline's `run`, or that of the result cache in front of it."""
    backend: Backend
    jobs: Jobs
    idempotency: Idempotency
    results: ResultReader
    clock: Callable[[], float]
    new_id: Callable[[], str]
    drain: Drain
    outage: Outage
    clients: Clients
    names: NameLookup
    gallery: Gallery
    links: Links | None
    """Links to results; None without a public URL."""

    @property
    def admission(self) -> Admission:
        return self.pipeline.admission

    @property
    def models(self) -> BackendModels:
        return self.backend.models

    @property
    def metrics(self) -> Metrics:
        return self.pipeline.metrics

    @property
    def tracer(self) -> RequestTracer | None:
        return self.pipeline.tracer

    @property
    def store(self) -> ResultStore:
        return self.pipeline.store

    def unready_reasons(self) -> list[str]:
        """Return the reasons why /readyz answers 503 now; empty when ready."""
        reasons = self._unready_reasons(draining=self.drain.announced or self.admission.draining.is_set())
        refusal = self.idempotency.ledger.connections.refusal
        return [*reasons, *storage_reasons(self.store.disk.failure_reason, refusal, saves=self.settings.save)]

    def outage_reasons(self) -> list[str]:
        """Return the reasons why nothing can be computed now: `unready_reasons` without an announced shutdown.

        A disk that rejects results or a ledger that is refused is not among them, as requests can still be computed.
        """
        return self._unready_reasons(draining=self.admission.draining.is_set())

    def ready_in_s(self) -> float:
        """Return the seconds until work is accepted again: by this server or, while it drains, by its replacement."""
        if self.admission.draining.is_set():
            return self.admission.retry_after_s() + self.outage.startup_s
        return self.outage.remaining_s(self.clock())

    def announce_shutdown(self) -> None:
        """Let /readyz answer 503 from now on, so that proxies stop routing here; work is still accepted."""
        self.drain.announced = True

    def begin_draining(self) -> None:
        """Refuse new work from now on; admitted requests are finished."""
        self.drain.begin()
        self.admission.draining.set()

    def fail_waiting_requests(self) -> None:
        """Answer all requests that still wait for the engine with 503, after the drain timeout."""
        self.drain.cut = self.admission.in_flight
        log.error("drain cut short", in_flight=self.drain.cut, waited_s=round(self.drain.waited_s, 1))
        self.backend.batcher.close()

    async def watch_outage(self) -> None:
        """Measure how long outages last, and log each change of readiness."""
        while True:
            was_ready, reasons = self.outage.over, self.outage_reasons()
            self.outage.observe(not reasons, self.clock())
            if self.outage.over and not was_ready:
                models = serving_names(self.models.statuses())
                log.info("ready", models=models, after_s=round(self.outage.usual_s, 1))
            elif was_ready and reasons and not self.admission.draining.is_set():
                log.warning("not ready", reasons=reasons)
            await asyncio.sleep(_POLL_INTERVAL_S)

    async def drain_when_device_lost(self) -> None:
        """Wait until this process loses the device; then answer all requests that wait for it with 503 and drain."""
        await self.backend.lost.wait()
        self.begin_draining()
        self.fail_waiting_requests()

    def _unready_reasons(self, *, draining: bool) -> list[str]:
        backend, loaded = self.backend, self.backend.loaded.is_set()
        return unready_reasons(ReadinessState(draining, loaded, backend.ready, self.models.statuses(), backend.loading))


@asynccontextmanager
async def open_service(settings: Settings, open_backend: OpenBackend = open_local_backend) -> AsyncIterator[Service]:
    """Open a running service without HTTP; its models are still loading when it is yielded.

    Args:
        settings: the server's configuration.
        open_backend: opens the backend; by default in this process.

    Raises:
        KeysInvalid: the key file cannot be read.
    """
    async with AsyncExitStack() as stack:
        yield await _build_service(settings, open_backend, stack)


@asynccontextmanager
async def open_pipeline(settings: Settings, open_backend: OpenBackend = open_local_backend) -> AsyncIterator[Pipeline]:
    """Open a pipeline with its models loaded, for use without a server; `SERVER_ONLY` settings have their defaults.

    Raises:
        DeviceLost: the device was lost while models were loading.
    """
    alone = {name: Settings.model_fields[name].default for name in SERVER_ONLY}
    async with open_service(settings.model_copy(update=alone), open_backend) as service:
        await wait_for_any(service.backend.loaded, service.backend.lost)
        if service.backend.lost.is_set():
            raise DeviceLost("the GPU was lost while models were loaded; start the process again")
        yield service.pipeline


async def _build_service(settings: Settings, open_backend: OpenBackend, stack: AsyncExitStack) -> Service:
    keep_freed_memory()
    shorten_switch_interval()
    clock, metrics = time.monotonic, Metrics()
    lag = LoopLag(clock)
    tracer = await stack.enter_async_context(open_request_tracer(settings))
    codec_work = CodecWork(threads := settings.codec_threads or usable_cores(), lambda: backend.server_load.spare_cores)
    stack.callback(codec_work.close)
    drain = Drain(settings.drain_timeout_s, clock, begun=asyncio.get_running_loop().create_future())
    owner = SpoolOwner(settings.results_dir, _new_uuid)
    state = await stack.enter_async_context(open_state(settings, metrics, drain, owner))
    store, records, earlier = state.store, state.jobs, EarlierResults(state.store, settings.promise == "store")
    clients = Clients(clock, _utc_now, Path(settings.keys_file) if settings.keys_file else None, state.key_usage)
    clients.load()
    idempotency = await stack.enter_async_context(
        open_idempotency(records.ledger, state.responses, records.owner, earlier, records.now, state.pause_for_keys)
    )
    results = ResultReader(store)
    stack.callback(results.close)
    await stack.enter_async_context(following_models(settings, metrics, state.agreement, clock))
    backend = await stack.enter_async_context(open_backend(settings, metrics))
    pipeline = Pipeline(
        settings=settings,
        models=backend.models,
        batcher=backend.batcher,
        store=store,
        admission=make_admission(
            settings, backend.server_load, lambda: codec_work.predicted_wait_s + lag.wait_s, clock
        ),
        metrics=metrics,
        codec_work=codec_work,
        memory=MemoryBudget(int(settings.max_decoded_mb * 2**20), clock),
        long_work=LongWork(threads, clock),
        clock=clock,
        new_id=_new_uuid,
        new_seed=_new_seed,
        tracer=tracer,
        texture=installed_kernel(),
        promise=make_promise(settings, store, clock),
    )
    cache = ResultCache(
        pipeline, records.ledger, results, settings.cache_entries, records.now, bool(settings.ledger_url)
    )
    run: Run = cache.run if settings.cache_entries else pipeline.run
    names = NameLookup()
    forget = (idempotency.forget_result, cache.forget_result)
    gallery = await stack.enter_async_context(open_gallery(pipeline, results, forget))
    jobs = await stack.enter_async_context(open_jobs(pipeline, run, records, backend.loaded, names))
    service = Service(
        settings=settings,
        pipeline=pipeline,
        run=run,
        backend=backend,
        jobs=jobs,
        idempotency=idempotency,
        results=results,
        clock=clock,
        new_id=_new_uuid,
        drain=drain,
        outage=Outage(clock()),
        clients=clients,
        names=names,
        gallery=gallery,
        links=open_links(settings, time.time),
    )
    _start_watches(service, lag, stack)
    _register_gauges(service)
    return service


def _start_watches(service: Service, lag: LoopLag, stack: AsyncExitStack) -> None:
    """Start the tasks that run as long as the service; the stack ends them."""
    watches = (
        service.drain_when_device_lost(),
        service.watch_outage(),
        lag.watch(),
        service.clients.follow_key_file(service.settings.model_poll_s),
    )
    for watch in watches:
        stack.push_async_callback(cancel_and_wait, asyncio.create_task(watch))


def _register_gauges(service: Service) -> None:
    """Register gauges that read the state of the service when they are scraped."""
    metrics = service.metrics
    metrics.watch(metrics.in_flight, lambda: service.admission.in_flight)
    metrics.watch(metrics.spool_items, lambda: service.store.pending)
    metrics.watch(metrics.spool_bytes, lambda: service.store.pending_bytes)
    metrics.watch(metrics.spool_oldest, lambda: service.store.oldest_age_s)
    metrics.watch(metrics.decoded_bytes, lambda: service.pipeline.memory.granted_bytes)
    metrics.watch(metrics.memory_waiting, lambda: service.pipeline.memory.waiting_requests)
    metrics.watch(metrics.results_removing, lambda: service.gallery.deletion.left)
    metrics.watch(metrics.ready, lambda: not service.unready_reasons())
    metrics.refresh()


def _utc_now() -> datetime:
    return datetime.now(timezone.utc)


def _new_uuid() -> str:
    """Return a new id that cannot be guessed: anyone who knows the id of a result may read it."""
    return uuid.uuid4().hex


def _new_seed() -> int:
    """Return a random seed, short enough to be dictated and exact as a JSON number in every parser."""
    return secrets.randbits(32)
