"""OpenTelemetry traces over OTLP: one a request with a span a stage, and a span a batch that requests link to.

Off unless `otlp_endpoint` is set; while it is off nothing of OpenTelemetry is imported here. Spans leave on a thread
of the SDK, which drops them rather than waits. Whether a request is traced is its caller's decision where it sends
`traceparent` (W3C Trace Context), else chance's. A batch has a trace of its own, because it belongs to several
requests; it has one only if one of them is traced.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from service.items import Computed
from service.settings import Settings, SettingsInvalid

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanContext, Tracer

_EXPORT_TIMEOUT_S = 5.0
"""Of one try; a collector that hangs must not hold the process's end longer."""
_PATH = "/v1/traces"


def check_tracing(settings: Settings) -> None:
    """Whether what the settings ask for is installed.

    Raises:
        SettingsInvalid: it is not.
    """
    if settings.otlp_endpoint and not (find_spec("opentelemetry") and find_spec("opentelemetry.sdk")):
        raise SettingsInvalid("otlp_endpoint needs OpenTelemetry: install the extra, pip install '.[otel]'")


class RequestTracer:
    """Begins the traces of requests."""

    def __init__(self, tracer: Tracer) -> None:
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 -- see the module's text
            TraceContextTextMapPropagator,
        )

        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, method: str, path: str, headers: Headers) -> RequestTrace:
        """The root span of a request; a child of its caller's where it names one."""
        from opentelemetry.trace import SpanKind  # noqa: PLC0415

        context = None
        if "traceparent" in headers:
            context = self._propagator.extract({name: headers.get(name, "") for name in ("traceparent", "tracestate")})
        span = self._tracer.start_span(
            method, context, SpanKind.SERVER, {"http.request.method": method, "url.path": path}
        )
        return RequestTrace(span)

    def follow(self, traceparent: str) -> StageTrace:
        """The trace of a request that began here, or in another process, or before a restart."""
        return StageTrace(self._tracer, self._propagator.extract({"traceparent": traceparent}))


class RequestTrace:
    """One request's root span."""

    def __init__(self, span: Span) -> None:
        self._span = span
        context = span.get_span_context()
        self.recorded = span.is_recording()
        self.traceparent = _traceparent(context)
        self.ids = {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}

    def end(self, route: str, status: int, facts: dict[str, str]) -> None:
        """It is answered, or its client left."""
        if not self.recorded:
            return
        from opentelemetry.trace import StatusCode  # noqa: PLC0415

        span = self._span
        span.update_name(f"{span.name} {route}")  # type: ignore[attr-defined] # a span of the SDK has a name
        span.set_attributes({"http.route": route, "http.response.status_code": status, **facts})
        if status >= 500:
            span.set_status(StatusCode.ERROR)
        span.end()


class StageTrace:
    """Spans of a request's stages, told of when they end, from any thread. Names as in Server-Timing."""

    def __init__(self, tracer: Tracer, parent: Context) -> None:
        self._tracer = tracer
        self._parent = parent

    def stage_ended(self, stage: str, seconds: float) -> None:
        """A stage ended just now."""
        now = time.time_ns()
        self._tracer.start_span(stage, self._parent, start_time=now - _ns(seconds)).end(now)

    def computed(self, done: Computed) -> None:
        """A sample came back just now: it waited, then its batch was computed."""
        from opentelemetry.trace import Link, SpanContext, TraceFlags  # noqa: PLC0415

        now = time.time_ns()
        began = now - _ns(done.infer_s)
        links = []
        if done.batch:
            _, trace_id, span_id, flags = done.batch.split("-")
            batch = SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)))
            links.append(Link(batch))
        self._tracer.start_span("queue", self._parent, start_time=began - _ns(done.queue_s)).end(began)
        facts = {"retouch.batch_size": done.batch_size}
        self._tracer.start_span("infer", self._parent, attributes=facts, links=links, start_time=began).end(now)


class BatchTracer:
    """Spans of batches, in the process that computes them."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def batch_ended(self, model: str, device: str, size: int, infer_s: float) -> str:
        """A batch ended just now; called on the device worker's thread. Returns its `traceparent`."""
        now = time.time_ns()
        facts: dict[str, str | int] = {"retouch.model": model, "retouch.device": device, "retouch.batch_size": size}
        span = self._tracer.start_span("batch", attributes=facts, start_time=now - _ns(infer_s))
        span.end(now)
        return _traceparent(span.get_span_context())


@asynccontextmanager
async def open_request_tracer(settings: Settings) -> AsyncIterator[RequestTracer | None]:
    """Traces as the settings say; None where they say nothing."""
    async with _open_tracer(settings, settings.trace_ratio) as tracer:
        yield RequestTracer(tracer) if tracer is not None else None


@asynccontextmanager
async def open_batch_tracer(settings: Settings) -> AsyncIterator[BatchTracer | None]:
    """As `open_request_tracer`, for the process that computes."""
    async with _open_tracer(settings, 1.0) as tracer:
        yield BatchTracer(tracer) if tracer is not None else None


@asynccontextmanager
async def _open_tracer(settings: Settings, ratio: float) -> AsyncIterator[Tracer | None]:
    if not settings.otlp_endpoint:
        yield None
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased  # noqa: PLC0415

    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(ratio)),
        resource=Resource.create({"service.name": "retouch", "service.version": version("retouch")}),
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(settings.otlp_endpoint.rstrip("/") + _PATH, timeout=_EXPORT_TIMEOUT_S)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    try:
        yield provider.get_tracer("retouch")
    finally:
        await asyncio.to_thread(provider.shutdown)  # sends what is left


def _traceparent(context: SpanContext) -> str:
    """W3C Trace Context, version 00."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
