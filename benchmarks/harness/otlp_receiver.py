"""An OTLP receiver over HTTP on loopback that keeps the spans.

Receiving must take little CPU time, because a benchmark would count it as the sender's. So connections stay open, as
with real collectors, and spans are decoded only when they are read.
"""

from __future__ import annotations

import gzip
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

if TYPE_CHECKING:
    from opentelemetry.proto.trace.v1.trace_pb2 import Span


class OtlpReceiver(ThreadingHTTPServer):
    """A receiver, used as a context manager; `cpu_s` is the CPU time spent on receiving, in seconds."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[bytes] = []
        self.paths: set[str] = set()
        self.cpu_s = 0.0
        self._spans: list[Span] = []
        self._decoded = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def spans(self) -> list[Span]:
        """Return all spans in the order of arrival."""
        while self._decoded < len(self.bodies):
            request = ExportTraceServiceRequest.FromString(self.bodies[self._decoded])
            self._decoded += 1
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    self._spans.extend(scope.spans)
        return self._spans

    def of_trace(self, trace_id: str) -> dict[str, Span]:
        """Return the spans of one trace by name; of several spans with one name, the last."""
        return {span.name: span for span in self.spans if span.trace_id.hex() == trace_id}

    def __enter__(self) -> OtlpReceiver:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: OtlpReceiver
    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        before = time.thread_time()
        super().handle_one_request()
        self.server.cpu_s += time.thread_time() - before

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.paths.add(self.path)
        self.server.bodies.append(body)
        reply = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- as its base names it
        """Print no line for each request."""
