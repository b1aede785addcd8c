"""Prometheus metrics, in base units; durations are histograms, so that percentiles can be aggregated over replicas."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector

from service.core.errors import NotReady
from service.telemetry.gpu_gauges import add_gpu_gauges
from service.telemetry.histograms import LabelledHistogram
from service.telemetry.metric_files import INCOMPLETE, use_metric_files

LATENCY_BUCKETS_S = (
    *(0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
BATCH_BUCKETS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256)


def combined_registry(directory: str) -> CollectorRegistry:
    """Return a registry with the metrics of all processes of a server, from files in `directory`, and GPU gauges."""
    registry = CollectorRegistry()
    registry.register(_FilesOfProcesses(directory))
    add_gpu_gauges(registry)
    return registry


class _FilesOfProcesses(Collector):
    """Adds up the metrics of all processes of a server, from files in `directory`."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def collect(self) -> Iterable[Metric]:
        """Return the sums.

        Raises:
            NotReady: files are missing, as they or the directory were removed. The sums of the others would look like
                counters that were reset.
        """
        self._check_complete()
        try:
            files = MultiProcessCollector(None, self._directory)  # type: ignore[no-untyped-call]
            sums = list(files.collect())  # type: ignore[no-untyped-call]
        except (OSError, ValueError):
            self._check_complete()
            raise
        self._check_complete()  # again: files may have been removed while they were read
        return sums

    def _check_complete(self) -> None:
        folder = Path(self._directory)
        if not folder.is_dir() or folder.stat().st_uid != os.geteuid() or (folder / INCOMPLETE).exists():
            raise _incomplete()  # another user may have made a folder where this server's was removed


def _incomplete() -> NotReady:
    return NotReady(
        "the metrics are incomplete since another program removed the server's run directory, or files in it",
        advice="let no program remove retouch-run-* from the folder for temporary files; the metrics return within "
        "seconds, unless a process of the server had ended before: then restart the server; its other endpoints are "
        "not affected",
    )


class Metrics:
    """All metrics of one process, in a registry of their own.

    If PROMETHEUS_MULTIPROC_DIR is set when prometheus_client is imported, metrics are kept in files there, which
    outlive the process, and `exposition` adds up those of all processes.

    Args:
        device: label of this process's only device; by default, the engine's name of it.
        now: wall clock, in seconds since the epoch.
    """

    def __init__(self, device: str = "", now: Callable[[], float] = time.time) -> None:
        self.registry, self._device, self._now = CollectorRegistry(), device, now
        self._files = use_metric_files()
        if not self.shared:
            add_gpu_gauges(self.registry)
        self._watched: list[tuple[Gauge, Callable[[], float]]] = []
        self._requests = self._histogram(
            "retouch_request_duration_seconds",
            "Seconds from the arrival of a request's header until its reply is sent",
            ("endpoint", "model", "code"),
        )
        self._stages = self._histogram(
            "retouch_stage_duration_seconds", "Seconds in one stage of a request", ("stage",)
        )
        per_device = ("model", "device")
        self._batch_sizes = self._histogram(
            "retouch_batch_size", "Number of samples in a batch", per_device, BATCH_BUCKETS
        )
        self._batches = self._histogram(
            "retouch_batch_duration_seconds", "Seconds from the start of a batch on the device to its end", per_device
        )
        self._last_batch = self._gauge(
            "retouch_last_batch_timestamp_seconds", "Time at which a model's last batch was computed", "max", ["model"]
        )
        self.rejected = Counter(
            "retouch_rejected", "Requests refused before they were computed", ["reason"], registry=self.registry
        )
        self.cancelled = Counter(
            "retouch_cancelled", "Requests whose client disconnected before the reply", registry=self.registry
        )
        self.worker_restarts = Counter(
            "retouch_worker_restarts",
            "Device workers, or their processes, replaced after they died or hung",
            registry=self.registry,
        )
        self.save_lag = Histogram(
            "retouch_save_lag_seconds",
            "Seconds from a reply until its result is stored",
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self.save_failures = Counter(
            "retouch_save_failures", "Failed attempts to write a result; each is retried", registry=self.registry
        )
        self.cache = Counter(
            "retouch_cache",
            "Requests that the result cache may answer: hit, miss, or coalesced with an identical one in progress",
            ["outcome"],
            registry=self.registry,
        )
        self.results_deleted = Counter(
            "retouch_results_deleted", "Results deleted by their owners", registry=self.registry
        )
        self.webhooks = Counter(
            "retouch_webhooks", "Attempts to deliver a webhook", ["outcome"], registry=self.registry
        )
        self._engines, self._loaded = _engines_gauge(self.registry), frozenset[tuple[str, str, str]]()
        self.queue_depth = self._gauge("retouch_queue_depth", "Samples waiting for the device")
        self.slot_bytes = self._gauge(
            "retouch_slot_bytes", "Bytes of the memory shared with engine processes that are in use"
        )
        self.in_flight = self._gauge(
            "retouch_requests_in_flight", "Requests that were admitted and are not answered yet"
        )
        self.ready = self._gauge("retouch_ready", "1 while /readyz answers 200", "livemin")
        self.decoded_bytes = self._gauge(
            "retouch_decoded_bytes", "Bytes of memory that are reserved for decoded pictures"
        )
        self.memory_waiting = self._gauge(
            "retouch_memory_waiting", "Requests that wait for memory to decode their pictures"
        )
        self.spool_items = self._gauge("retouch_spool_items", "Results that wait to be stored")
        self.spool_bytes = self._gauge("retouch_spool_bytes", "Bytes of the results that wait to be stored")
        self.spool_oldest = self._gauge(
            "retouch_spool_oldest_age_seconds", "Seconds for which the oldest result has waited to be stored", "livemax"
        )
        self.results_removing = self._gauge(
            "retouch_results_removing",
            "Deleted results of which copies are left, for instance because the bucket fails",
            "livemax",
        )

    @property
    def shared(self) -> bool:
        """Whether this server has several processes with metrics."""
        return bool(self._files.folder)

    def watch(self, gauge: Gauge, read: Callable[[], float]) -> None:
        """Make `read` supply the value of a gauge at each scrape."""
        gauge.set_function(read)
        self._watched.append((gauge, read))

    def refresh(self) -> None:
        """Write the watched gauges and missing files, for the other processes of this server."""
        if self.shared:
            self._files.store_missing()
            for gauge, read in self._watched:
                gauge.set(float(read()))

    def exposition(self, *, openmetrics: bool = False) -> bytes:
        """Return the metrics of all of the server's processes, in Prometheus's text format or in OpenMetrics.

        Raises:
            NotReady: files of the metrics were removed.
        """
        self.refresh()
        registry = combined_registry(self._files.folder) if self.shared else self.registry
        if openmetrics:
            return bytes(generate_openmetrics(registry))  # type: ignore[no-untyped-call]
        return generate_latest(registry)

    def request_done(self, endpoint: str, model: str, status: int, seconds: float) -> None:
        """Record a request that was answered, or whose client left."""
        self._requests.observe((endpoint, model, str(status)), seconds)

    def stages_done(self, stages: Mapping[str, float]) -> None:
        """Record the seconds of each stage of a request."""
        for stage, seconds in stages.items():
            self._stages.observe((stage,), seconds)

    def batch_done(self, model: str, device: str, size: int, device_s: float) -> None:
        """Record a batch that was computed; called on the event loop."""
        labels = model, self._device or device
        self._batch_sizes.observe(labels, size)
        self._batches.observe(labels, device_s)
        self._last_batch.labels(model).set(self._now())

    def models_loaded(self, loaded: frozenset[tuple[str, str, str]]) -> None:
        """Record the versions that are loaded now, each as (name/version, engine, precision)."""
        for value, labels in ((0, self._loaded - loaded), (1, loaded)):
            for each in labels:
                self._engines.labels(*each).set(value)
        self._loaded = loaded

    def saved(self, lag_s: float) -> None:
        """Record a result that became durable `lag_s` seconds after its reply; called on the store's threads."""
        self.save_lag.observe(lag_s)

    def save_failed(self) -> None:
        """Record a failed attempt to write a result."""
        self.save_failures.inc()

    def webhook_attempted(self, outcome: str) -> None:
        """Record an attempt to deliver a webhook."""
        self.webhooks.labels(outcome).inc()

    def cache_looked_up(self, outcome: str) -> None:
        """Record whether a cacheable request found its result: hit, miss or coalesced."""
        self.cache.labels(outcome).inc()

    def make_models_failing(self) -> Gauge:
        """Make the gauge of failed model fetches, which only servers with a bucket of models have."""
        return self._gauge(
            "retouch_models_failing_seconds", "How long models could not be fetched; 0 if they can", "livemax"
        )

    def _histogram(
        self, name: str, text: str, label_names: tuple[str, ...], buckets: Sequence[float] = LATENCY_BUCKETS_S
    ) -> LabelledHistogram:
        """Make a histogram whose observations are cheap enough for every request."""
        return LabelledHistogram(name, text, label_names, buckets, self.registry)

    def _gauge(
        self,
        name: str,
        text: str,
        over_processes: Literal["livesum", "livemax", "livemin", "max"] = "livesum",
        label_names: Sequence[str] = (),
    ) -> Gauge:
        """Make a gauge that aggregates the values of the running processes; with `max` also of those that ended."""
        return Gauge(name, text, label_names, multiprocess_mode=over_processes, registry=self.registry)


def _engines_gauge(registry: CollectorRegistry) -> Gauge:
    return Gauge(
        "retouch_model_engine",
        "1 for each loaded version, with the engine and the precision that compute it",
        ("model", "engine", "precision"),
        multiprocess_mode="livesum",
        registry=registry,
    )
