"""Steps that every call passes: request id, trace, key, rate, its method, its status, log line and metrics.

Every method is declared to grpcio as a streaming one, although clients see a unary one: messages of a streaming method
are read on request, so the key is checked and the request admitted first, and a reply that is not read is noticed.
"""

from __future__ import annotations

import asyncio
import random
from time import perf_counter

import grpc
import structlog

from service.app import Service
from service.auth.clients import Client
from service.core.errors import Cancelled, DeadlineExceeded, MethodNotAllowed, ServiceError
from service.grpc.call import Answer, Context, RemoteCall
from service.grpc.message_memory import MessageMemory
from service.grpc.metadata import MetadataLines, address_of
from service.grpc.methods import METHODS, SERVICE
from service.grpc.statuses import status_of, trailing_of
from service.intake.refusals import count_refusal, cut_off_error, internal_error
from service.intake.request_metadata import acceptable_request_id
from service.telemetry.request_log import RequestOutcome
from service.telemetry.tracing import RequestTrace

log = structlog.get_logger(__name__)

_METHOD = "POST"
"""The HTTP method of every gRPC call, for log and traces."""


class Calls(grpc.GenericRpcHandler):  # type: ignore[misc] # grpcio has no types
    """Answers the calls of all methods, known or not."""

    def __init__(self, service: Service, memory: MessageMemory) -> None:
        self._service, self._memory = service, memory
        self.latest_at = perf_counter()
        """Time of the latest call, by `perf_counter`."""
        self.unanswered = 0
        """Number of accepted calls whose status has not been sent."""
        self._open = True
        self._random = random.Random()  # noqa: S311 -- request ids are not secret

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Return the handler of a call."""
        path = handler_call_details.method

        async def answer(_: object, context: Context) -> None:
            if not self._open:
                await asyncio.get_running_loop().create_future()  # until its connection is closed
            self.unanswered += 1
            context.add_done_callback(self._count_answered)
            await self._answer(path, context)

        return grpc.stream_stream_rpc_method_handler(answer)

    def close(self) -> None:
        """Accept no further calls: they wait until their connection is closed."""
        self._open = False

    def _count_answered(self, _: object) -> None:
        self.unanswered -= 1

    async def _answer(self, path: str, context: Context) -> None:
        self.latest_at = started_at = perf_counter()
        lines = MetadataLines(context.invocation_metadata() or ())
        request_id = acceptable_request_id(lines.get("x-request-id")) or f"{self._random.getrandbits(128):032x}"
        call = RemoteCall(self._service, self._memory, context, path, lines, request_id)
        outcome = RequestOutcome(request_id, _METHOD, path, path if path in METHODS else "unknown")
        trace, code = self._begin_trace(call), grpc.StatusCode.CANCELLED
        try:
            code = await self._reply(call, outcome, trace)
        finally:
            outcome.model = outcome.model or call.model
            outcome.client = call.client.id if call.client.name else ""
            outcome.record(self._service.metrics, perf_counter() - started_at, grpc_status=code.name)
            if trace is not None:
                model = {"retouch.model": outcome.model} if outcome.model else {}
                facts = {"retouch.request_id": request_id, "rpc.grpc.status": code.name, **model}
                trace.end(outcome.endpoint, outcome.status, facts)

    async def _reply(self, call: RemoteCall, outcome: RequestOutcome, trace: RequestTrace | None) -> grpc.StatusCode:
        """Answer a call with a message or a status."""
        common = [("x-request-id", call.request_id)]
        if trace is not None:
            common.append(("traceparent", trace.traceparent))
        try:
            answer = await self._answer_of(call, outcome)
        except ServiceError as error:
            count_refusal(self._service, error)
            code, text = status_of(error)
            outcome.status, outcome.code = error.status, error.code
            call.context.set_trailing_metadata((*common, *trailing_of(error)))
            call.context.set_code(code)
            call.context.set_details(text)
            return code
        outcome.status, outcome.model = 200, answer.facts.get("x-model", "")
        call.context.set_trailing_metadata((*common, *answer.facts.items()))
        with self._memory.unread(call.client.id, len(answer.message)):
            await call.context.write(answer.message)
        return grpc.StatusCode.OK

    async def _answer_of(self, call: RemoteCall, outcome: RequestOutcome) -> Answer:
        """Return the answer of a call's method.

        Raises:
            ServiceError: the call is refused, or fails.
            CancelledError: its client has gone; gRPC cancels the task, and no status is sent.
        """
        try:
            return await self._admit(call)
        except ServiceError:
            raise
        except Cancelled:
            self._service.metrics.cancelled.inc()
            raise asyncio.CancelledError from None
        except asyncio.CancelledError:
            if self._service.drain.cut:
                raise cut_off_error(self._service) from None
            if (call.context.time_remaining() or 1.0) <= 0:
                outcome.status, outcome.code = DeadlineExceeded.status, DeadlineExceeded.default_code
            self._service.metrics.cancelled.inc()
            raise
        except Exception:  # the client gets INTERNAL, the log the traceback
            log.exception("request failed", request_id=call.request_id, path=call.path)
            raise internal_error() from None

    async def _admit(self, call: RemoteCall) -> Answer:
        """Check the key and its rate before anything else, then run the method."""
        method, clients = METHODS.get(call.path), self._service.clients
        address = address_of(call.context.peer())
        if method is not None and method.public:
            call.client = Client(f"address:{address}", scopes=frozenset())
            return await method.answer(call)
        call.client = clients.identify(call.lines, address)
        call.client.require("inference")
        clients.charge(call.client, work=method is not None and method.work)
        if method is None:
            names = ", ".join(path.removeprefix(SERVICE) for path in METHODS)
            raise MethodNotAllowed(f"no method {call.path[:100]!r}; {SERVICE[1:-1]} has {names}")
        return await method.answer(call)

    def _begin_trace(self, call: RemoteCall) -> RequestTrace | None:
        tracer, method = self._service.tracer, METHODS.get(call.path)
        if tracer is None or (method is not None and method.public):
            return None
        trace = tracer.begin_trace(_METHOD, call.path, call.lines)
        structlog.contextvars.bind_contextvars(**trace.ids)
        if trace.recorded:
            call.traceparent = trace.traceparent
        return trace
