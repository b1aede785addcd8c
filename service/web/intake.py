"""An HTTP request for pictures, from its admission to its answer; service/intake has the parts without HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import Request
from fastapi.responses import Response

from service.app import Service
from service.core.order import Order
from service.intake.intake import Arrival, Intake
from service.intake.intake import admitted as admitted_intake
from service.intake.request_metadata import parse_priority, parse_timeout_s, single_value
from service.repeats.response_files import StoredResponse
from service.web.form import read_up_to_limit
from service.web.responses import from_stored_response, to_stored_response

Work = Callable[[], Coroutine[Any, Any, Response]]


@dataclass(slots=True, kw_only=True)
class HttpIntake(Intake):
    """An admitted HTTP request that is not answered yet; at first, its body has not been read."""

    request: Request

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield the body in pieces, whose memory is counted.

        Raises:
            TooLarge: the body is larger than `max_body_bytes`.
            Overloaded: as raised by `count_bytes`.
            Cancelled: the client left before the body was complete.
        """
        async for chunk in read_up_to_limit(self.request, self.max_body_bytes):
            self.count_bytes(len(chunk))
            yield chunk

    def once(self, order: Order, varies_with: Sequence[str], work: Work, *, is_job: bool = False) -> Work:
        """Return `work`, wrapped, if the request has an Idempotency-Key, so that it runs once for all with that key.

        Args:
            order: the order.
            varies_with: further values on which the response depends; they are part of the request's fingerprint.
            work: makes the response.
            is_job: see `run_idempotent`.

        Raises:
            InvalidOption: the request has several keys.
        """
        if (key := single_value(self.request.headers, "Idempotency-Key")) is None:
            return work
        return partial(self._once, key, order, varies_with, work, is_job=is_job)

    async def _once(self, key: str, order: Order, varies_with: Sequence[str], work: Work, *, is_job: bool) -> Response:
        async def kept_work() -> StoredResponse:
            return to_stored_response(await work())

        return from_stored_response(await self.run_idempotent(key, order, varies_with, kept_work, is_job=is_job))


def admitted(request: Request, default_timeout_s: float | None = None) -> AbstractContextManager[HttpIntake]:
    """Admit a request by its header, for the duration of the block.

    Args:
        request: the request, whose body has not been read.
        default_timeout_s: seconds until the deadline if the client sets none; None: the setting `request_timeout_s`.

    Raises:
        ShuttingDown, Overloaded, DeadlineExceeded, NotReady: the request cannot be served now.
        InvalidOption: a header is invalid.
    """
    state = request.scope["state"]
    service: Service = state["service"]
    arrival = Arrival(
        state["request_id"],
        state["client"].id,
        parse_timeout_s(single_value(request.headers, "X-Request-Timeout-Ms")),
        parse_priority(single_value(request.headers, "X-Priority")),
        state.get("traceparent", ""),
        state.get("presence"),
        partial(state.__setitem__, "model"),
    )
    return admitted_intake(service, arrival, partial(HttpIntake, request=request), default_timeout_s)
