"""An HTTP request for pictures from its admission to its answer; the parts without HTTP are in service/intake."""

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
from service.intake.request_metadata import asked_priority, asked_timeout_s, single_value
from service.repeats.response_files import KeptResponse
from service.web.form import read_up_to_limit
from service.web.responses import from_stored_response, to_stored_response

Work = Callable[[], Coroutine[Any, Any, Response]]


@dataclass(slots=True, kw_only=True)
class HttpIntake(Intake):
    """An admitted HTTP request whose body has not been read, or is not answered yet."""

    request: Request

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield the body in pieces, each counted.

        Raises:
            TooLarge: the body is larger than `max_body_bytes`.
            Overloaded: as `count_bytes`.
            Cancelled: the client left before the body was complete.
        """
        async for chunk in read_up_to_limit(self.request, self.max_body_bytes):
            self.count_bytes(len(chunk))
            yield chunk

    def once(self, order: Order, varies_with: Sequence[str], work: Work) -> Work:
        """Return `work`, wrapped so that requests with the same Idempotency-Key run it once, if this one has a key.

        Args:
            order: the order.
            varies_with: what else the response depends on; a request that differs in it is another request.
            work: makes the response.

        Raises:
            InvalidOption: there are several keys.
        """
        if (key := single_value(self.request.headers, "Idempotency-Key")) is None:
            return work
        return partial(self._once, key, order, varies_with, work)

    async def _once(self, key: str, order: Order, varies_with: Sequence[str], work: Work) -> Response:
        async def kept_work() -> KeptResponse:
            return to_stored_response(await work())

        return from_stored_response(await self.kept_once(key, order, varies_with, kept_work))


def admitted(request: Request, unasked_s: float | None = None) -> AbstractContextManager[HttpIntake]:
    """Admit a request by its header, for the length of the block.

    Args:
        request: its body has not been read.
        unasked_s: seconds until the deadline if the client names none; by default the server's `request_timeout_s`.

    Raises:
        ShuttingDown, Overloaded, DeadlineExceeded, NotReady: it cannot be served now.
        InvalidOption: a header is wrong.
    """
    state = request.scope["state"]
    service: Service = state["service"]
    arrival = Arrival(
        state["request_id"],
        state["client"].id,
        asked_timeout_s(single_value(request.headers, "X-Request-Timeout-Ms")),
        asked_priority(single_value(request.headers, "X-Priority")),
        state.get("traceparent", ""),
        state.get("presence"),
    )
    return admitted_intake(service, arrival, partial(HttpIntake, request=request), unasked_s)
