"""Spans that are created after they ended, compared with those of OpenTelemetry's SDK."""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import Link, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.datastructures import Headers

from service.core.batch_rows import ComputedSample
from service.core.settings import Settings
from service.telemetry.spans import ids_of_traceparent
from service.telemetry.tracing import BatchTracer, RequestTracer, open_batch_tracer, open_request_tracer

BATCH = f"00-{7:032x}-{8:016x}-01"
CALLER = {"traceparent": f"00-{5:032x}-{6:016x}-01", "tracestate": "vendor=it"}


class Kept(SpanProcessor):
    """A span processor that keeps ended spans."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.append(span)


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def tracer(kept: Kept) -> Any:
    provider = TracerProvider(resource=Resource.create({"service.name": "retouch"}))
    provider.add_span_processor(kept)
    return provider.get_tracer("retouch")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_000_000_000)


def encoded(kept: Kept) -> list[Any]:
    """Return all spans as encoded for export, without ids, with their resource and scope."""
    (resource,) = encode_spans(kept.spans).resource_spans
    (scope,) = resource.scope_spans
    for span in scope.spans:
        span.span_id = b""
    kept.spans.clear()
    return [resource.resource, scope.scope, scope.schema_url, *scope.spans]


@pytest.mark.parametrize("status", [200, 503])
def test_a_request_is_what_the_sdk_makes_of_it(kept: Kept, tracer: Any, status: int) -> None:
    trace = RequestTracer(tracer, 0.0).begin_trace("POST", "/v1/inpaint", Headers(CALLER))
    trace.end("/v1/{task}", status, {"retouch.model": "photos/1"})
    assert int(trace.ids["span_id"], 16) == kept.spans[0].get_span_context().span_id
    ours = encoded(kept)
    facts = {
        "http.request.method": "POST",
        "url.path": "/v1/inpaint",
        "http.route": "/v1/{task}",
        "http.response.status_code": status,
        "retouch.model": "photos/1",
    }
    span = tracer.start_span(
        "POST /v1/{task}",
        TraceContextTextMapPropagator().extract(CALLER),
        SpanKind.SERVER,
        facts,
        start_time=time.time_ns(),
    )
    if status == 503:
        span.set_status(StatusCode.ERROR)
    span.end(time.time_ns())
    assert ours == encoded(kept)


def test_stages_and_the_link_to_their_batch_are_what_the_sdk_makes_of_them(kept: Kept, tracer: Any) -> None:
    stages = RequestTracer(tracer, 0.0).resume(CALLER["traceparent"])
    stages.stage_ended("decode", 0.25)
    stages.sample_computed(ComputedSample(None, 4, 0.5, 0.25, 0.25, BATCH))  # type: ignore[arg-type]
    stages.sample_computed(ComputedSample(None, 4, 0.5, 0.25, 0.25))  # type: ignore[arg-type]
    ours = encoded(kept)
    parent = TraceContextTextMapPropagator().extract({"traceparent": CALLER["traceparent"]})
    now = time.time_ns()
    quarter = 250_000_000
    tracer.start_span("decode", parent, start_time=now - quarter).end(now)
    for links in ([Link(ids_of_traceparent(BATCH))], []):
        facts = {"retouch.batch_size": 4}
        tracer.start_span("queue", parent, start_time=now - 3 * quarter).end(now - quarter)
        tracer.start_span("infer", parent, attributes=facts, links=links, start_time=now - quarter).end(now)
    assert ours == encoded(kept)


def test_a_batch_has_a_trace_of_its_own_and_says_which(kept: Kept, tracer: Any) -> None:
    traces = BatchTracer(tracer)
    first, second = (ids_of_traceparent(traces.batch_ended("photos/1", "cpu", 4, 0.25)) for _ in range(2))
    assert first.trace_id != second.trace_id
    assert [(span.get_span_context().trace_id, span.parent) for span in kept.spans] == [
        (first.trace_id, None),
        (second.trace_id, None),
    ]
    assert dict(kept.spans[0].attributes or {}) == {
        "retouch.model": "photos/1",
        "retouch.device": "cpu",
        "retouch.batch_size": 4,
    }


def test_no_id_is_zero_whatever_chance_says(kept: Kept, tracer: Any) -> None:
    drawn = count()
    trace = RequestTracer(tracer, 1.0, lambda _: 0 * next(drawn)).begin_trace("POST", "/v1/inpaint", Headers({}))
    assert trace.traceparent == f"00-{1:032x}-{1:016x}-01"
    assert next(drawn) == 3


async def test_nothing_is_traced_where_opentelemetry_is_disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    settings = Settings(otlp_endpoint="http://127.0.0.1:9")
    async with open_request_tracer(settings) as requests, open_batch_tracer(settings) as batches:
        assert requests is None
        assert batches is None
