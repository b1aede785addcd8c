"""Compares this server's tracing with that of OpenTelemetry's SDK: CPU time of a request.

    .venv/bin/python -m benchmarks.worth.traces [--requests 2000] [--rounds 25]

Spans: those of a request and its nine stages, made when they end (as here), and with the SDK's `start_span` and `end`;
both drop them. Encoding: the same spans as OTLP, by our encoder and the SDK's. Printed: the means of interleaved
rounds, and the ratio with its interval. With the default trace ratio only one request in ten has spans.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, Tracer, TracerProvider
from opentelemetry.trace import SpanKind, set_span_in_context

from benchmarks.harness.ratios import print_ratios, ratio_of
from service.telemetry.otlp import encode_spans_fast
from service.telemetry.spans import SpanSender

STAGES = ("body", "decode", "preprocess", "queue", "infer", "postprocess", "encode", "spool", "send")
FACTS: dict[str, str | int] = {
    "http.request.method": "POST",
    "url.path": "/v1/inpaint",
    "http.route": "/v1/inpaint",
    "http.response.status_code": 200,
    "retouch.model": "photos/4",
}
Work = Callable[[int], None]
"""Does the work of that number of requests."""


class Kept(SpanProcessor):
    """Keeps the newest spans and drops the others."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        if len(self.spans) >= len(STAGES) + 1:
            self.spans.clear()
        self.spans.append(span)


def tracer_into(kept: Kept) -> Tracer:
    """Return a tracer of the SDK whose spans go to `kept`."""
    provider = TracerProvider(resource=Resource.create({"service.name": "retouch"}), shutdown_on_exit=False)
    provider.add_span_processor(kept)
    tracer = provider.get_tracer("retouch")
    if not isinstance(tracer, Tracer):
        raise SystemExit("OpenTelemetry is disabled in the environment: unset OTEL_SDK_DISABLED")
    return tracer


def spans_by_hand(kept: Kept) -> Work:
    """Return the work with spans that are made when they have ended."""
    spans = SpanSender(tracer_into(kept))

    def work(requests: int) -> None:
        for _ in range(requests):
            root, now = spans.new_ids(), time.time_ns()
            for stage in STAGES:
                spans.send_stage(root, stage, (now, time.time_ns()))
            spans.send_request(root, None, "POST /v1/inpaint", (now, time.time_ns()), FACTS)

    return work


def spans_of_the_library(kept: Kept) -> Work:
    """Return the work with the SDK's spans, started and ended."""
    tracer = tracer_into(kept)

    def work(requests: int) -> None:
        for _ in range(requests):
            root = tracer.start_span("POST /v1/inpaint", kind=SpanKind.SERVER, start_time=time.time_ns())
            inside = set_span_in_context(root)
            for stage in STAGES:
                tracer.start_span(stage, inside, start_time=time.time_ns()).end(time.time_ns())
            root.set_attributes(FACTS)
            root.end(time.time_ns())

    return work


def encoders(spans: Sequence[ReadableSpan]) -> tuple[Work, Work]:
    """Return the encoding of one request's spans for each request; batches of 512 spans as the SDK sends them."""
    batch = [*spans] * (512 // len(spans))
    requests_of_a_batch = len(batch) // len(spans)

    def repeated(encode: Callable[[Sequence[ReadableSpan]], object]) -> Work:
        def work(requests: int) -> None:
            for _ in range(max(1, requests // requests_of_a_batch)):
                encode(batch)

        return work

    return repeated(lambda some: encode_spans_fast(some).SerializeToString()), repeated(
        lambda some: encode_spans(some).SerializeToString()
    )


def us_a_request(work: Work, requests: int) -> float:
    """Return microseconds of CPU time per request."""
    begun = time.process_time()
    work(requests)
    return (time.process_time() - begun) * 1e6 / requests


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2_000, help="requests in each round")
    parser.add_argument("--rounds", type=int, default=25)
    options = parser.parse_args()
    kept = Kept()
    pairs = {
        "spans": (spans_by_hand(kept), spans_of_the_library(Kept())),
    }
    pairs["spans"][0](1)
    pairs["encoding"] = encoders(tuple(kept.spans))
    ratios = {}
    for name, (ours, theirs) in pairs.items():
        seen: tuple[list[float], list[float]] = ([], [])
        for number in range(options.rounds + 1):
            for i in (0, 1) if number % 2 else (1, 0):
                took = us_a_request((ours, theirs)[i], options.requests)
                if number:  # the first round warms up
                    seen[i].append(took)
        ratios[f"{name}, µs a request"] = ratio_of(*seen)
    print_ratios("the SDK relative to ours", ("ours", "SDK"), ratios)


if __name__ == "__main__":
    main()
