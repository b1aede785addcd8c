"""The outermost middleware: request ids, access log, request metrics, traces, and problem responses for errors."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import structlog
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engines.validation import faults_message
from service.core.errors import (
    Cancelled,
    InvalidOption,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    ServiceError,
)
from service.intake.refusals import count_refusal, cut_off_error, internal_error
from service.intake.request_metadata import acceptable_request_id
from service.telemetry.redaction import without_key_secrets
from service.telemetry.request_log import CLIENT_CLOSED_REQUEST, RequestOutcome
from service.telemetry.tracing import RequestTrace, RequestTracer
from service.web.foreign_api import ForeignApi, ForeignPaths
from service.web.request_headers import RequestHead
from service.web.responses import problem_response

log = structlog.get_logger(__name__)

_PROBES = ("/livez", "/readyz", "/metrics")
_TRACED = "/v1/"
_SECURITY_HEADERS = [
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; sandbox"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
]
"""Headers of every reply, which keep browsers from running uploaded content as a page of this server."""


@dataclass(slots=True)
class _ResponseFacts:
    status: int = CLIENT_CLOSED_REQUEST
    model: str = ""
    started: bool = False


class AccessLog:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, apis: Sequence[ForeignApi] = ()) -> None:
        self._app, self._foreign = app, ForeignPaths(apis)
        self._sharing = tuple(api for api in apis if api.shared)
        self._random = random.Random()  # noqa: S311 -- request ids are not secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_at, outcome, state = perf_counter(), _ResponseFacts(), scope["state"]
        head = state["head"] = RequestHead(scope)
        request_id = acceptable_request_id(head.get("x-request-id")) or f"{self._random.getrandbits(128):032x}"
        state["request_id"], state["foreign_api"] = request_id, self._foreign.api_of(scope["path"])
        state["sharing_apis"] = self._sharing
        trace = self._begin_trace(scope)

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = dict(message["headers"])
                added = [pair for pair in _SECURITY_HEADERS if pair[0] not in headers]
                if trace is not None:
                    added.append((b"traceparent", trace.traceparent.encode()))
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode()), *added]
                outcome.status, outcome.started = message["status"], True
                outcome.model = headers.get(b"x-model", b"").decode("latin-1")
            await send(message)

        try:
            error = await self._failure_of(self._app(scope, receive, send_with_id), scope)
            if error is not None and not outcome.started:
                await _error_response(error, scope)(scope, receive, send_with_id)
        finally:
            outcome.model = outcome.model or state.get("model", "")
            self._count_and_log(scope, outcome, perf_counter() - started_at)
            if trace is not None:
                self._end_trace(trace, scope, outcome)

    @staticmethod
    def _begin_trace(scope: Scope) -> RequestTrace | None:
        """Start the request's trace and add its ids to the log context; None for probes and pages."""
        tracer: RequestTracer | None = scope["state"]["service"].tracer
        traced = scope["path"].startswith(_TRACED) or scope["state"]["foreign_api"] is not None
        if tracer is None or not traced:
            return None
        trace = tracer.begin_trace(scope["method"], without_key_secrets(scope["path"]), RequestHead.of(scope))
        structlog.contextvars.bind_contextvars(**trace.ids)
        if trace.recorded:
            scope["state"]["traceparent"] = trace.traceparent
        return trace

    @staticmethod
    def _end_trace(trace: RequestTrace, scope: Scope, outcome: _ResponseFacts) -> None:
        facts = {"retouch.request_id": scope["state"]["request_id"]}
        if outcome.model:
            facts["retouch.model"] = outcome.model
        trace.end(_route_path(scope), outcome.status, facts)
        structlog.contextvars.unbind_contextvars(*trace.ids)

    async def _failure_of(self, work: Awaitable[None], scope: Scope) -> ServiceError | None:
        """Run the application, and return the error to answer with if it failed without a reply."""
        state = scope["state"]
        try:
            await work
        except Cancelled:
            state["service"].metrics.cancelled.inc()
        except asyncio.CancelledError:  # the drain timed out
            return cut_off_error(state["service"])
        except Exception:  # the client gets a 500, the log the traceback
            log.exception("request failed", request_id=state["request_id"], path=without_key_secrets(scope["path"]))
            return internal_error()
        return None

    def _count_and_log(self, scope: Scope, outcome: _ResponseFacts, seconds: float) -> None:
        state, endpoint = scope["state"], _route_path(scope)
        client, path = state.get("client"), without_key_secrets(scope["path"])
        RequestOutcome(
            *(state["request_id"], scope["method"], path, endpoint, outcome.status, outcome.model),
            *(state.get("code", ""), client.id if client and client.name else ""),
        ).record(state["service"].metrics, seconds, quiet=endpoint in _PROBES)


def _route_path(scope: Scope) -> str:
    route = scope.get("route")
    return route.path if route else "unknown"


async def reply_to_nobody(request: Request, _: Exception) -> Response:
    """Handle a client's disconnection: count it, and return a response that is never received."""
    request.scope["state"]["service"].metrics.cancelled.inc()
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def reply_with_problem(request: Request, error: Exception) -> Response:
    """Convert any error, including Starlette's own, to a response in the format of the path's API."""
    problem = _as_service_error(error)
    state = request.scope["state"]
    state["code"] = problem.code
    count_refusal(state["service"], problem)
    unknown_path = isinstance(error, HTTPException) and error.status_code == 404
    response = _error_response(problem, request.scope, unknown_path=unknown_path)
    if isinstance(error, HTTPException) and error.headers:
        response.headers.update(dict(error.headers))
    return response


def _error_response(error: ServiceError, scope: Scope, *, unknown_path: bool = False) -> Response:
    """Return an error in the format of the API to which the request's path belongs."""
    state, path, further = scope["state"], scope["path"], dict[str, Any]()
    api: ForeignApi | None = state.get("foreign_api")
    if api is not None:
        return api.error_response(error)
    for sharing in state.get("sharing_apis", ()):
        if unknown_path or sharing.shares(path):
            further |= sharing.error_body(error)
    return problem_response(error, state["request_id"], path, further)


def _as_service_error(error: Any) -> ServiceError:
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, RequestValidationError):
        faults = [{**fault, "loc": fault["loc"][1:]} for fault in error.errors()]  # without `query`
        return InvalidOption(f"{faults_message(faults, 'parameter')} (GET /docs lists the parameters)")
    if not isinstance(error, HTTPException):
        return internal_error()
    if error.status_code == 404:
        return NotFound("no such path; GET /docs lists them")
    if error.status_code == 405:
        return MethodNotAllowed("the path exists, but not for this method; GET /docs lists them")
    return InvalidRequest(str(error.detail))
