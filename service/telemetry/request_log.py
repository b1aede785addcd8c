"""The record of a finished request, over HTTP or gRPC: its metrics and its line in the log."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from service.telemetry.metrics import Metrics

log = structlog.get_logger(__name__)

CLIENT_CLOSED_REQUEST = 499
"""Status in logs and metrics of a request whose client disconnected before its reply; never sent."""


@dataclass(slots=True)
class RequestOutcome:
    """Outcome of a request.

    endpoint: the route, a label of the metrics.
    status: the HTTP status, also for a request over gRPC.
    code: the error's code; empty without an error.
    client: id of the API key; empty if no keys are required.
    """

    request_id: str
    method: str
    path: str
    endpoint: str = "unknown"
    status: int = CLIENT_CLOSED_REQUEST
    model: str = ""
    code: str = ""
    client: str = ""

    def record(self, metrics: Metrics, seconds: float, *, quiet: bool = False, **further: str) -> None:
        """Count the request, which took `seconds`, and log it; probes are `quiet`."""
        metrics.request_done(self.endpoint, self.model, self.status, seconds)
        present = {"model": self.model, "code": self.code, "client": self.client, **further}
        (log.debug if quiet else log.info)(
            "request",
            request_id=self.request_id,
            method=self.method,
            path=self.path,
            status=self.status,
            duration_ms=round(seconds * 1e3, 2),
            **{name: value for name, value in present.items() if value},
        )
