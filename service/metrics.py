"""Prometheus series. Base units; histograms, so that percentiles can be aggregated over replicas."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

LATENCY_BUCKETS_S = (
    *(0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
    *(0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
BATCH_BUCKETS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256)


class Metrics:
    """All series of one server, on a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.request = Histogram(
            "retouch_request_duration_seconds",
            "Time from the request's header to its reply",
            ["endpoint", "model", "code"],
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self.stage = Histogram(
            "retouch_stage_duration_seconds",
            "Time in one stage of a request",
            ["stage"],
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self.batch_size = Histogram(
            "retouch_batch_size", "Samples in a batch", ["model"], buckets=BATCH_BUCKETS, registry=self.registry
        )
        self.batch_duration = Histogram(
            "retouch_batch_duration_seconds",
            "Time a batch held the device",
            ["model"],
            buckets=LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self.rejected = Counter(
            "retouch_rejected", "Requests refused before they were computed", ["reason"], registry=self.registry
        )
        self.cancelled = Counter("retouch_cancelled", "Requests whose client left", registry=self.registry)
        self.worker_restarts = Counter(
            "retouch_worker_restarts", "Device workers replaced after they died or hung", registry=self.registry
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
        self.webhooks = Counter("retouch_webhooks", "Tries to deliver a webhook", ["outcome"], registry=self.registry)
        self.queue_depth = Gauge("retouch_queue_depth", "Samples waiting for the device", registry=self.registry)
        self.in_flight = Gauge("retouch_requests_in_flight", "Requests in the house", registry=self.registry)
        self.spool_items = Gauge("retouch_spool_items", "Results waiting for the disk", registry=self.registry)
        self.spool_bytes = Gauge("retouch_spool_bytes", "Bytes waiting for the disk", registry=self.registry)
        self.spool_oldest = Gauge(
            "retouch_spool_oldest_age_seconds",
            "How long the oldest result has waited for the disk",
            registry=self.registry,
        )
        self.ready = Gauge("retouch_ready", "1 while /readyz answers 200", registry=self.registry)

    def watch(self, gauge: Gauge, read: Callable[[], float]) -> None:
        """Let a gauge read the state whenever it is scraped."""
        gauge.set_function(read)

    def batch_done(self, model: str, size: int, infer_s: float) -> None:
        """A batch was computed (called on the device worker's thread)."""
        self.batch_size.labels(model).observe(size)
        self.batch_duration.labels(model).observe(infer_s)

    def saved(self, lag_s: float) -> None:
        """A result became durable (called on the store's threads)."""
        self.save_lag.observe(lag_s)

    def save_failed(self) -> None:
        """A try to write a result failed; it is tried again."""
        self.save_failures.inc()

    def webhook_tried(self, outcome: str) -> None:
        """A try to deliver a webhook ended."""
        self.webhooks.labels(outcome).inc()
