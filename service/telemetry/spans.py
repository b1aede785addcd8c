"""Spans of OpenTelemetry, made when they have ended: the SDK's way, to start and to end each, costs ten times as much.

Whoever imports this imports OpenTelemetry; it is imported where traces are on. Left out of the SDK's way is what no
span here needs: a sampler (whoever sends a span has decided), the thread's context, a lock, limits of attributes.
Batching is the SDK's; `otlp.py` encodes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial

from opentelemetry.sdk.trace import ReadableSpan, Tracer
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

Facts = Mapping[str, str | int]
Times = tuple[int, int]
"""Begin and end, in nanoseconds since 1970."""
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_FAILED = Status(StatusCode.ERROR)


class Spans:
    """Sends spans that have ended, from any thread.

    Args:
        tracer: whose they are.
        bits: so many random bits as an integer.
    """

    def __init__(self, tracer: Tracer, bits: Callable[[int], int] = random.getrandbits) -> None:
        scope = InstrumentationScope("retouch")
        self._span = partial(ReadableSpan, resource=tracer.resource, instrumentation_scope=scope)
        self._send = tracer.span_processor.on_end
        self._bits = bits
        self._propagator = TraceContextTextMapPropagator()

    def new_ids(self, parent: SpanContext | None = None) -> SpanContext:
        """Of a span, and of a trace where it has no parent."""
        if parent is None:
            return SpanContext(self._bits(128) or 1, self._bits(64) or 1, False, _SAMPLED)
        return SpanContext(parent.trace_id, self._bits(64) or 1, False, _SAMPLED, parent.trace_state)

    def caller(self, headers: Mapping[str, str]) -> SpanContext | None:
        """The span that the caller names; None where what it sends is none."""
        sent = {name: headers.get(name, "") for name in ("traceparent", "tracestate")}
        context = get_current_span(self._propagator.extract(sent)).get_span_context()
        return context if context.is_valid else None

    def request(self, ids: SpanContext, parent: SpanContext | None, name: str, times: Times, facts: Facts) -> None:
        """A whole request; it failed if its status says so."""
        status = {"status": _FAILED} if int(facts["http.response.status_code"]) >= 500 else {}
        span = partial(self._span, name, ids, parent, kind=SpanKind.SERVER, attributes=facts, **status)
        self._send(span(start_time=times[0], end_time=times[1]))

    def stage(self, parent: SpanContext, name: str, times: Times) -> None:
        """A stage of a request."""
        self._send(self._span(name, self.new_ids(parent), parent, start_time=times[0], end_time=times[1]))

    def infer(self, parent: SpanContext, times: Times, batch_size: int, batch: str) -> None:
        """A sample was computed, in the batch of that `traceparent`; empty where that has no span."""
        self._send(
            self._span(
                "infer",
                self.new_ids(parent),
                parent,
                attributes={"retouch.batch_size": batch_size},
                links=(Link(ids_of(batch)),) if batch else (),
                start_time=times[0],
                end_time=times[1],
            )
        )

    def batch(self, times: Times, facts: Facts) -> SpanContext:
        """A batch, in a trace of its own."""
        ids = self.new_ids()
        self._send(self._span("batch", ids, attributes=facts, start_time=times[0], end_time=times[1]))
        return ids


def ids_of(traceparent: str) -> SpanContext:
    """Of a span of ours that another process or an earlier part of this one began."""
    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)))
