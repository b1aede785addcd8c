"""Spans and log lines of calls."""

from __future__ import annotations

import logging
from typing import Any

from grpc import StatusCode
from grpc._cython import cygrpc

from benchmarks.harness.otlp_receiver import OtlpReceiver
from service.grpc.methods import SERVICE
from tests.serving.grpc_client import GrpcClient, files_request
from tests.serving.waiting import wait_until

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
STAGES = ["memory", "decode", "preprocess", "queue", "infer", "postprocess", "encode", "save"]


def test_a_call_is_one_trace_that_continues_its_callers(
    collector: OtlpReceiver, serve_grpc: Any, photo: bytes, mask: bytes
) -> None:
    trace_id, caller_id = CALLER.split("-")[1:3]
    running = serve_grpc(otlp_endpoint=collector.url, trace_ratio=0)
    with GrpcClient(running.grpc_address) as client:
        answered = client.call("ModelInfer", files_request(photo, mask), traceparent=CALLER)
        assert client.call("ServerLive", traceparent=CALLER).code is StatusCode.OK  # a probe is not traced
    wait_until(lambda: len(collector.of_trace(trace_id)) == len(STAGES) + 1)
    spans = collector.of_trace(trace_id)
    root = spans.pop(f"POST {SERVICE}ModelInfer")
    assert root.parent_span_id.hex() == caller_id
    assert answered.trailing["traceparent"] == f"00-{trace_id}-{root.span_id.hex()}-01"
    assert sorted(spans) == sorted(STAGES)
    facts = {one.key: one.value for one in root.attributes}
    assert facts["http.response.status_code"].int_value == 200
    assert facts["rpc.grpc.status"].string_value == "OK"
    assert facts["retouch.model"].string_value == "photos/1"
    assert facts["retouch.request_id"].string_value == answered.trailing["x-request-id"]


class _Kept(logging.Handler):
    """Keeps the messages of log records."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def test_clients_that_leave_as_they_are_answered_are_not_logged_as_errors(serve_grpc: Any) -> None:
    """Grpcio logs a traceback for each: of clients with short deadlines, that was one call in 170."""
    kept, logger = _Kept(), logging.getLogger("grpc._cython.cygrpc")
    logger.addHandler(kept)
    try:
        running = serve_grpc()
        for error in (cygrpc.ExecuteBatchError("SendStatusFromServer"), ValueError("another")):
            logger.error("%s raised in core", type(error).__name__, exc_info=error)
        running.stop()
    finally:
        logger.removeHandler(kept)
    assert kept.messages == ["ValueError raised in core"]
    assert not logger.filters
