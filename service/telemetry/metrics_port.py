"""A separate port for metrics: prometheus_client's server, with the path and the formats of /metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server

from service.core.errors import ServiceError

_PLAIN_TEXT = [("Content-Type", "text/plain; charset=utf-8")]


def serve_metrics(host: str, port: int, registry: CollectorRegistry) -> None:
    """Serve the metrics of a registry on a thread of their own, until the process ends.

    Raises:
        OSError: the port is not available.
    """
    server, _ = start_http_server(port, host, registry)
    server.set_app(_at_its_path(_as_asked(make_wsgi_app(registry))))


def _at_its_path(app: Callable[..., Any]) -> Callable[..., Any]:
    """Answer 404 on other paths, where prometheus_client answers 200, as if /readyz were ready, and errors as text."""

    def served(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        if environ.get("PATH_INFO") == "/metrics":
            try:
                return app(environ, start_response)
            except ServiceError as error:
                start_response(f"{error.status} {error.title}", _PLAIN_TEXT)
                return [str(error).encode()]
        start_response("404 Not Found", _PLAIN_TEXT)
        return [b"this port has /metrics only; --port has the rest"]

    return served


def _as_asked(app: Callable[..., Any]) -> Callable[..., Any]:
    """Remove the parts of a request that prometheus_client cannot answer.

    It fails if a version in `Accept` is not a number. With a query `name[]` it answers an empty 200 where it knows no
    names beforehand, as in the files of several processes; /metrics of the other port takes no query either.
    """

    def served(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        accept = ",".join(part.split(";")[0] for part in environ.get("HTTP_ACCEPT", "").split(","))
        return app({**environ, "HTTP_ACCEPT": accept, "QUERY_STRING": ""}, start_response)

    return served
