"""OpenTelemetry spans, created when they have ended, which costs a tenth of starting and ending them with the SDK.

It leaves out what spans here do not need: a sampler (the caller has decided), the thread's context, a lock, and limits
of attributes. The SDK still does the batching, and `otlp.py` encodes. Imports OpenTelemetry, so it is imported only
where traces are on.
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


class SpanSender:
    """Creates and sends spans that have ended, from any thread.

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
        """New ids for a span, in its parent's trace or, without a parent, in a new one."""
        if parent is None:
            return SpanContext(self._bits(128) or 1, self._bits(64) or 1, False, _SAMPLED)
        return SpanContext(parent.trace_id, self._bits(64) or 1, False, _SAMPLED, parent.trace_state)

    def remote_parent(self, headers: Mapping[str, str]) -> SpanContext | None:
        """The client's span, from the headers `traceparent` and `tracestate`; None if they are missing or invalid."""
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
        """Send the span of a computed sample, linked to its batch's `traceparent`, which is empty without a span."""
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
    """The ids in the `traceparent` of a span that this server made, here or in another process."""
    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16)))
