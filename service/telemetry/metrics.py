"""Prometheus series. Base units; histograms, so that percentiles can be aggregated over replicas."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from service.telemetry.gpu_gauges import add_gpu_gauges
from service.telemetry.histograms import OwnTally, SharedTally, Tally

LATENCY_BUCKETS_S = (
    *(0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
BATCH_BUCKETS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256)


def gathered(directory: str) -> CollectorRegistry:
    """The series that the processes of one server keep there, added up; and the GPUs, which they share."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry, directory)  # type: ignore[no-untyped-call]
    add_gpu_gauges(registry)
    return registry


class Metrics:
    """All series of one server, on a registry of its own.

    Where PROMETHEUS_MULTIPROC_DIR is set when prometheus_client is imported, it keeps them in files there, which
    outlive the process, and `exposition` adds up those of all processes.

    Args:
        device: what this process's only device is called; by default what engines call it.
    """

    def __init__(self, device: str = "") -> None:
        self.registry = CollectorRegistry()
        self._device = device
        self._directory = os.environ.get("PROMETHEUS_MULTIPROC_DIR", "")
        if not self._directory:
            add_gpu_gauges(self.registry)
        self._watched: list[tuple[Gauge, Callable[[], float]]] = []
        self._requests = self._tally(
            "retouch_request_duration_seconds",
            "Time from the request's header to its reply",
            ("endpoint", "model", "code"),
        )
        self._stages = self._tally("retouch_stage_duration_seconds", "Time in one stage of a request", ("stage",))
        per_device = ("model", "device")
        self._batch_sizes = self._tally("retouch_batch_size", "Samples in a batch", per_device, BATCH_BUCKETS)
        self._batches = self._tally("retouch_batch_duration_seconds", "Time a batch held the device", per_device)
        self.rejected = Counter(
            "retouch_rejected", "Requests refused before they were computed", ["reason"], registry=self.registry
        )
        self.cancelled = Counter("retouch_cancelled", "Requests whose client left", registry=self.registry)
        self.worker_restarts = Counter(
            "retouch_worker_restarts",
            "Device workers, or their processes, replaced after they died or hung",
            registry=self.registry,
        )
        self.save_lag = Histogram(
            "retouch_save_lag_seconds",
            "Time from a reply to its result being durable",
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self.save_failures = Counter(
            "retouch_save_failures", "Failed attempts to write a result; each is retried", registry=self.registry
        )
        self.cache = Counter(
            "retouch_cache",
            "Requests that could be cached: hit, miss, or coalesced with one in flight",
            ["outcome"],
            registry=self.registry,
        )
        self.webhooks = Counter("retouch_webhooks", "Tries to deliver a webhook", ["outcome"], registry=self.registry)
        self.queue_depth = self._gauge("retouch_queue_depth", "Samples waiting for the device")
        self.slot_bytes = self._gauge("retouch_slot_bytes", "Memory shared with engine processes that is in use")
        self.in_flight = self._gauge("retouch_requests_in_flight", "Requests in the house")
        self.decoded_bytes = self._gauge("retouch_decoded_bytes", "Memory that is handed out for decoded pictures")
        self.memory_waiting = self._gauge("retouch_memory_waiting", "Requests that wait for memory for their pictures")
        self.spool_items = self._gauge("retouch_spool_items", "Results waiting for the disk")
        self.spool_bytes = self._gauge("retouch_spool_bytes", "Bytes waiting for the disk")
        self.spool_oldest = self._gauge(
            "retouch_spool_oldest_age_seconds", "How long the oldest result has waited for the disk", "livemax"
        )
        self.ready = self._gauge("retouch_ready", "1 while /readyz answers 200", "livemin")

    @property
    def shared(self) -> bool:
        """Whether other processes of this server have series too."""
        return bool(self._directory)

    def watch(self, gauge: Gauge, read: Callable[[], float]) -> None:
        """Let a gauge read the state whenever it is scraped."""
        gauge.set_function(read)
        self._watched.append((gauge, read))

    def refresh(self) -> None:
        """Write the state down for the other processes of this server, which cannot ask for it."""
        if self.shared:
            for gauge, read in self._watched:
                gauge.set(float(read()))

    def exposition(self) -> bytes:
        """All series as text: of all processes of this server, where there are several."""
        self.refresh()
        return generate_latest(gathered(self._directory) if self._directory else self.registry)

    def request_done(self, endpoint: str, model: str, status: int, seconds: float) -> None:
        """A request was answered, or its client left."""
        self._requests.observe((endpoint, model, str(status)), seconds)

    def stages_done(self, stages: Mapping[str, float]) -> None:
        """A request went through these stages, in seconds."""
        for stage, seconds in stages.items():
            self._stages.observe((stage,), seconds)

    def batch_done(self, model: str, device: str, size: int, device_s: float) -> None:
        """A batch was computed (called on the device worker's thread)."""
        labels = model, self._device or device
        self._batch_sizes.observe(labels, size)
        self._batches.observe(labels, device_s)

    def saved(self, lag_s: float) -> None:
        """A result became durable (called on the store's threads)."""
        self.save_lag.observe(lag_s)

    def save_failed(self) -> None:
        """A try to write a result failed; it is tried again."""
        self.save_failures.inc()

    def webhook_tried(self, outcome: str) -> None:
        """A try to deliver a webhook ended."""
        self.webhooks.labels(outcome).inc()

    def cache_asked(self, outcome: str) -> None:
        """A request that could be cached found its result, or did not."""
        self.cache.labels(outcome).inc()

    def _tally(
        self, name: str, text: str, label_names: tuple[str, ...], buckets: Sequence[float] = LATENCY_BUCKETS_S
    ) -> Tally:
        """A histogram that is told of something with every request."""
        return (SharedTally if self.shared else OwnTally)(name, text, label_names, buckets, self.registry)

    def _gauge(
        self, name: str, text: str, over_processes: Literal["livesum", "livemax", "livemin"] = "livesum"
    ) -> Gauge:
        """A gauge of the processes that live."""
        return Gauge(name, text, multiprocess_mode=over_processes, registry=self.registry)
