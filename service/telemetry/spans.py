"""OpenTelemetry spans, created once they have ended, in a tenth of the time of starting and ending them in the SDK.

Omitted are features that spans here do not need: sampling (done by the caller), the thread's context, locking, and
limits of attributes. The SDK still batches spans, and `otlp.py` encodes them. This module imports OpenTelemetry, so it
is imported only if tracing is on.
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
"""Start and end, in nanoseconds since the epoch."""
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_FAILED = Status(StatusCode.ERROR)


class SpanSender:
    """Creates and sends spans that have ended. Thread-safe.

    Args:
        tracer: the SDK's tracer, whose resource and processor are used.
        bits: returns an integer of that many random bits.
    """

    def __init__(self, tracer: Tracer, bits: Callable[[int], int] = random.getrandbits) -> None:
        scope = InstrumentationScope("retouch")
        self._span = partial(ReadableSpan, resource=tracer.resource, instrumentation_scope=scope)
        self._send = tracer.span_processor.on_end
        self._bits = bits
        self._propagator = TraceContextTextMapPropagator()

    def new_ids(self, parent: SpanContext | None = None) -> SpanContext:
        """Return new ids for a span, in its parent's trace or, without a parent, in a new trace."""
        if parent is None:
            return SpanContext(self._bits(128) or 1, self._bits(64) or 1, False, _SAMPLED)
        return SpanContext(parent.trace_id, self._bits(64) or 1, False, _SAMPLED, parent.trace_state)

    def remote_parent(self, headers: Mapping[str, str]) -> SpanContext | None:
        """Return the client's span, from the headers `traceparent` and `tracestate`; None if missing or invalid."""
        sent = {name: headers.get(name, "") for name in ("traceparent", "tracestate")}
        context = get_current_span(self._propagator.extract(sent)).get_span_context()
        return context if context.is_valid else None

    def send_request(self, ids: SpanContext, parent: SpanContext | None, name: str, times: Times, facts: Facts) -> None:
        """Send the span of a whole request; a status of 500 or more marks it as failed."""
        status = {"status": _FAILED} if int(facts["http.response.status_code"]) >= 500 else {}
        span = partial(self._span, name, ids, parent, kind=SpanKind.SERVER, attributes=facts, **status)
        self._send(span(start_time=times[0], end_time=times[1]))

    def send_stage(self, parent: SpanContext, name: str, times: Times) -> None:
        """Send the span of a stage of a request."""
        self._send(self._span(name, self.new_ids(parent), parent, start_time=times[0], end_time=times[1]))

    def send_infer(self, parent: SpanContext, times: Times, batch_size: int, batch: str) -> None:
        """Send the span of a computed sample, with a link to its batch's span; `batch`: its `traceparent`, or empty."""
        self._send(
            self._span(
                "infer",
                self.new_ids(parent),
                parent,
                attributes={"retouch.batch_size": batch_size},
                links=(Link(ids_of_traceparent(batch)),) if batch else (),
                start_time=times[0],
                end_time=times[1],
            )
        )

    def send_batch(self, times: Times, facts: Facts) -> SpanContext:
        """Send the span of a batch, in a trace of its own, and return its ids."""
        ids = self.new_ids()
        self._send(self._span("batch", ids, attributes=facts, start_time=times[0], end_time=times[1]))
        return ids


def ids_of_traceparent(traceparent: str) -> SpanContext:
    """Return the ids in the `traceparent` of a span that this server made, in this or another process."""
    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)))
