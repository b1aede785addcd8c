"""The encoding of spans for OTLP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from starlette.datastructures import Headers

from benchmarks.harness.otlp_receiver import OtlpReceiver
from service.core.batch_rows import ComputedSample
from service.telemetry.otlp import Exporter, encode_spans_fast
from service.telemetry.tracing import BatchTracer, RequestTracer

CALLER = {"traceparent": f"00-{5:032x}-{6:016x}-01", "tracestate": "vendor=it,other=that"}


@pytest.fixture
def spans() -> list[ReadableSpan]:
    """Spans of every kind: with and without a remote parent, trace state, attributes, a link, an error."""
    ended: list[ReadableSpan] = []

    class Kept(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            ended.append(span)

    provider = TracerProvider(resource=Resource.create({"service.name": "retouch", "service.version": "1"}))
    provider.add_span_processor(Kept())
    tracer: Any = provider.get_tracer("retouch")
    requests, batches = RequestTracer(tracer, 1.0), BatchTracer(tracer)
    for headers, status in ((CALLER, 200), ({}, 503)):
        trace = requests.begin_trace("POST", "/v1/inpaint", Headers(headers))
        stages = requests.resume(trace.traceparent)
        stages.stage_ended("decode", 0.001)
        batch = batches.batch_ended("photos/1", "cpu", 4, 0.001)
        for one in (batch, ""):
            stages.sample_computed(ComputedSample(None, 4, 0.001, 0.001, 0.001, one))  # type: ignore[arg-type]
        trace.end("/v1/inpaint", status, {"retouch.request_id": "an id, ü", "retouch.model": ""})
    return ended


def test_they_are_encoded_to_the_bytes_of_the_sdks_encoder(spans: list[ReadableSpan]) -> None:
    assert len(spans) == 14
    for some in (spans, spans[:1], spans[-1:], spans[::-1]):
        assert encode_spans_fast(some).SerializeToString() == encode_spans(some).SerializeToString()


def test_spans_arrive_at_a_collector_until_shutdown(spans: list[ReadableSpan]) -> None:
    with OtlpReceiver() as receiver:
        exporter = Exporter(f"{receiver.url}/v1/traces", timeout=5)
        assert exporter.export(spans) is SpanExportResult.SUCCESS
        exporter.shutdown()
        assert exporter.export(spans) is SpanExportResult.FAILURE
    assert [span.name for span in receiver.spans] == [span.name for span in spans]


def test_a_collector_that_is_not_there_is_a_failure(spans: list[ReadableSpan], free_port: int) -> None:
    exporter = Exporter(f"http://127.0.0.1:{free_port}/v1/traces", timeout=0.1)
    assert exporter.export(spans) is SpanExportResult.FAILURE
    exporter.shutdown()


def test_where_the_sdks_inside_is_another_it_sends_them_itself(
    spans: list[ReadableSpan], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Sequence[ReadableSpan]] = []
    exporter = Exporter("http://127.0.0.1:9/v1/traces")
    monkeypatch.delattr(exporter, "_client")

    def export(_: OTLPSpanExporter, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        given.append(spans)
        return SpanExportResult.SUCCESS

    monkeypatch.setattr(OTLPSpanExporter, "export", export)
    assert exporter.export(spans) is SpanExportResult.SUCCESS
    assert given == [spans]
