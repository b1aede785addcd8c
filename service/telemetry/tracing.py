"""OpenTelemetry traces over OTLP: a trace per request with a span per stage, and a trace per batch.

Off unless `otlp_endpoint` is set; only then is OpenTelemetry imported. A thread of the SDK sends spans, and drops them
if it cannot keep up. A client that sends `traceparent` (W3C Trace Context) decides whether its request is traced; other
requests are sampled at random. A batch with a traced request has its own trace, to which the requests' traces link.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from service.core.batch_rows import ComputedSample
from service.core.settings import Settings, SettingsInvalid

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import Tracer
    from opentelemetry.trace import SpanContext

    from service.telemetry.spans import SpanSender

_EXPORT_TIMEOUT_S = 5.0
"""Timeout of one export in seconds, which limits how long a hung collector can delay the process's end."""
_PATH = "/v1/traces"
_COLLECTOR = re.compile(r"https?://[^/\s]+(/\S*)?")
_SAMPLING_BITS = 53
"""Random bits for sampling: the precision of a float."""


def check_collector(endpoint: str) -> None:
    """Check the address of the collector; empty means no collector.

    Raises:
        SettingsInvalid: `endpoint` is not an HTTP URL.
    """
    if endpoint and not _COLLECTOR.fullmatch(endpoint):
        shown = endpoint.rpartition("@")[2]
        raise SettingsInvalid(f"otlp_endpoint: {shown!r} is not the address of a collector; write http://HOST:4318")


def check_tracing(settings: Settings) -> None:
    """Check that OpenTelemetry is installed if the settings need it.

    Raises:
        SettingsInvalid: OpenTelemetry is needed but not installed.
    """
    if settings.otlp_endpoint and not (find_spec("opentelemetry") and find_spec("opentelemetry.sdk")):
        raise SettingsInvalid("otlp_endpoint needs OpenTelemetry: install the extra, pip install '.[otel]'")


class RequestTracer:
    """Starts the traces of requests.

    Args:
        tracer: the SDK's tracer.
        ratio: share of requests to trace, 0 to 1, among those whose client sends no `traceparent`.
        bits: returns an integer of that many random bits.
    """

    def __init__(self, tracer: Tracer, ratio: float, bits: Callable[[int], int] = random.getrandbits) -> None:
        from service.telemetry.spans import SpanSender  # noqa: PLC0415 -- see the module's docstring

        self._spans = SpanSender(tracer, bits)
        self._sampling_threshold = round((1.0 - ratio) * 2**_SAMPLING_BITS)
        self._bits = bits

    def begin_trace(self, method: str, path: str, headers: Mapping[str, str]) -> RequestTrace:
        """Start the trace of a request, as a child of the client's span if it sends one."""
        caller = self._spans.remote_parent(headers) if "traceparent" in headers else None
        recorded = caller.trace_flags.sampled if caller else self._bits(_SAMPLING_BITS) >= self._sampling_threshold
        if recorded:
            root = _RootSpan(self._spans, self._spans.new_ids(caller), caller, method, path, time.time_ns())
            return RequestTrace(root.ids.trace_id, root.ids.span_id, root)
        trace_id = caller.trace_id if caller else self._bits(128) or 1
        return RequestTrace(trace_id, self._bits(64) or 1)

    def resume(self, traceparent: str) -> StageTrace:
        """Continue the trace of a request that this process, another one or one before a restart has begun."""
        from service.telemetry.spans import ids_of_traceparent  # noqa: PLC0415

        return StageTrace(self._spans, ids_of_traceparent(traceparent))


@dataclass(frozen=True, slots=True)
class _RootSpan:
    """The root span of a recorded request while it runs."""

    spans: SpanSender
    ids: SpanContext
    caller: SpanContext | None
    method: str
    path: str
    started_ns: int


class RequestTrace:
    """The trace of one request, which may not be recorded."""

    def __init__(self, trace_id: int, span_id: int, root: _RootSpan | None = None) -> None:
        self._root = root
        self.recorded = root is not None
        self.ids = {"trace_id": f"{trace_id:032x}", "span_id": f"{span_id:016x}"}
        self.traceparent = _traceparent(trace_id, span_id, int(self.recorded))

    def end(self, route: str, status: int, facts: dict[str, str]) -> None:
        """End the trace, as the request was answered or its client has left."""
        root = self._root
        if root is None:
            return
        about = {"http.request.method": root.method, "url.path": root.path, "http.route": route}
        times = root.started_ns, time.time_ns()
        name = f"{root.method} {route}"
        root.spans.send_request(
            root.ids, root.caller, name, times, {**about, "http.response.status_code": status, **facts}
        )


class StageTrace:
    """Sends the spans of a request's stages when they end; named as in Server-Timing. Thread-safe."""

    def __init__(self, spans: SpanSender, parent: SpanContext) -> None:
        self._spans = spans
        self._parent = parent

    def stage_ended(self, stage: str, seconds: float) -> None:
        """Send the span of a stage that ended just now."""
        now = time.time_ns()
        self._spans.send_stage(self._parent, stage, (now - _nanoseconds(seconds), now))

    def sample_computed(self, done: ComputedSample) -> None:
        """Send the spans `queue` and `infer` of a sample that was returned just now."""
        now = time.time_ns()
        began = now - _nanoseconds(done.infer_s)
        self._spans.send_stage(self._parent, "queue", (began - _nanoseconds(done.queue_s), began))
        self._spans.send_infer(self._parent, (began, now), done.batch_size, done.batch)


class BatchTracer:
    """Sends the spans of batches, in the process that computes them."""

    def __init__(self, tracer: Tracer) -> None:
        from service.telemetry.spans import SpanSender  # noqa: PLC0415

        self._spans = SpanSender(tracer)

    def batch_ended(self, model: str, device: str, size: int, infer_s: float) -> str:
        """Send the span of a batch that ended just now, and return its `traceparent`; on the device worker's thread."""
        now = time.time_ns()
        facts: dict[str, str | int] = {"retouch.model": model, "retouch.device": device, "retouch.batch_size": size}
        ids = self._spans.send_batch((now - _nanoseconds(infer_s), now), facts)
        return _traceparent(ids.trace_id, ids.span_id, ids.trace_flags)


@asynccontextmanager
async def open_request_tracer(settings: Settings) -> AsyncIterator[RequestTracer | None]:
    """Open the tracer of requests; None if traces are off."""
    async with _open_tracer(settings) as tracer:
        yield RequestTracer(tracer, settings.trace_ratio) if tracer is not None else None


@asynccontextmanager
async def open_batch_tracer(settings: Settings) -> AsyncIterator[BatchTracer | None]:
    """Open the tracer of batches, for the process that computes; None if traces are off."""
    async with _open_tracer(settings) as tracer:
        yield BatchTracer(tracer) if tracer is not None else None


@asynccontextmanager
async def _open_tracer(settings: Settings) -> AsyncIterator[Tracer | None]:
    if not settings.otlp_endpoint:
        yield None
        return
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import Tracer, TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    from service.telemetry.otlp import Exporter  # noqa: PLC0415

    provider = TracerProvider(
        resource=Resource.create({"service.name": "retouch", "service.version": version("retouch")}),
        shutdown_on_exit=False,
    )
    exporter = Exporter(settings.otlp_endpoint.rstrip("/") + _PATH, timeout=_EXPORT_TIMEOUT_S)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        tracer = provider.get_tracer("retouch")
        yield tracer if isinstance(tracer, Tracer) else None  # another class if OTEL_SDK_DISABLED is set
    finally:
        await asyncio.to_thread(provider.shutdown)  # sends what is left


def _traceparent(trace_id: int, span_id: int, flags: int) -> str:
    """Format a `traceparent` (W3C Trace Context, version 00)."""
    return f"00-{trace_id:032x}-{span_id:016x}-{flags:02x}"


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
