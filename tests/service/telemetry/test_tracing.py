"""Traces that a collector receives from a real server."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from starlette.datastructures import Headers

from benchmarks.harness.otlp_receiver import OtlpReceiver
from engines.fake import FakeEngine
from engines.manifest import Manifest
from service.telemetry.tracing import RequestTracer
from tests.serving.served_process import ROOT, ServedProcess
from tests.serving.waiting import wait_until

Files = dict[str, tuple[str, bytes, str]]
Serve = Callable[..., Any]
CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
STAGES = ["memory", "decode", "preprocess", "queue", "infer", "postprocess", "encode", "save"]


def test_a_request_is_one_trace_with_a_span_a_stage_that_continues_its_callers(
    serve: Serve, files: Files, collector: OtlpReceiver
) -> None:
    running = serve(otlp_endpoint=collector.url, trace_ratio=0)
    with running.client() as client:
        response = client.post("/v1/inpaint", files=files, headers={"traceparent": CALLER})
    trace_id, caller_id = CALLER.split("-")[1:3]
    wait_until(lambda: len(collector.of_trace(trace_id)) == len(STAGES) + 1)
    spans = collector.of_trace(trace_id)
    root = spans.pop("POST /v1/inpaint")
    assert root.parent_span_id.hex() == caller_id
    assert response.headers["traceparent"] == f"00-{trace_id}-{root.span_id.hex()}-01"
    assert sorted(spans) == sorted(STAGES)
    assert {span.parent_span_id for span in spans.values()} == {root.span_id}
    in_order = [spans[stage] for stage in STAGES[:-1]]
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in in_order)
    assert all(a.start_time_unix_nano <= b.start_time_unix_nano for a, b in pairwise(in_order))
    assert root.start_time_unix_nano <= in_order[0].start_time_unix_nano
    assert in_order[-1].end_time_unix_nano <= root.end_time_unix_nano
    timings = dict(part.split(";dur=") for part in response.headers["server-timing"].split(", "))
    for stage, milliseconds in timings.items():
        took_ns = spans[stage].end_time_unix_nano - spans[stage].start_time_unix_nano
        assert took_ns / 1e6 == pytest.approx(float(milliseconds), abs=0.01)
    facts = {one.key: one.value for one in root.attributes}
    assert facts["http.response.status_code"].int_value == 200
    assert facts["retouch.model"].string_value == "photos/1"
    assert facts["retouch.request_id"].string_value == response.headers["x-request-id"]
    assert collector.paths == {"/v1/traces"}


def held(go_on: threading.Event) -> Callable[[Manifest], FakeEngine]:
    """Make engines whose batches end when the event is set."""

    def wait(_: float) -> None:
        assert go_on.wait(60)

    return lambda manifest: FakeEngine(manifest, batch_s=1.0, sleep=wait)


def test_requests_of_one_batch_link_to_its_span(serve: Serve, files: Files, collector: OtlpReceiver) -> None:
    go_on = threading.Event()
    running = serve(fake=held(go_on), otlp_endpoint=collector.url, trace_ratio=1)
    before, queue = running.executed, running.service.pipeline.batcher
    with running.client() as client, ThreadPoolExecutor(4) as pool:
        replies = [pool.submit(client.post, "/v1/inpaint", files=files) for _ in range(4)]
        wait_until(lambda: running.executed - before + len(queue) == 4)
        go_on.set()
        ids = [reply.result().headers["traceparent"].split("-")[1] for reply in replies]
    wait_until(lambda: all("save" in collector.of_trace(one) for one in ids))

    def batches_by_id() -> dict[bytes, Any]:
        return {span.span_id: span for span in collector.spans if span.name == "batch"}

    linked = {collector.of_trace(one)["infer"].links[0].span_id for one in ids}
    wait_until(lambda: linked <= batches_by_id().keys())  # a batch's span may be exported after those of its requests
    batches = batches_by_id()
    sizes = 0
    for trace_id in ids:
        (link,) = collector.of_trace(trace_id)["infer"].links
        batch = batches[link.span_id]
        assert batch.trace_id == link.trace_id != bytes.fromhex(trace_id)
        sizes += 1 / {one.key: one.value for one in batch.attributes}["retouch.batch_size"].int_value
    assert sizes == pytest.approx(len(batches))
    assert len(batches) < 4


def test_a_job_is_traced_behind_its_reply_too(serve: Serve, files: Files, collector: OtlpReceiver) -> None:
    running = serve(otlp_endpoint=collector.url, trace_ratio=0)
    headers = {"traceparent": CALLER, "Prefer": "respond-async"}
    with running.client() as client:
        assert client.post("/v1/inpaint", files=files, headers=headers).status_code == 202
    wait_until(lambda: len(collector.of_trace(CALLER.split("-")[1])) == len(STAGES) + 1)


def test_unsampled_requests_get_ids_and_no_spans(serve: Serve, files: Files, collector: OtlpReceiver) -> None:
    running = serve(otlp_endpoint=collector.url, trace_ratio=0)
    with running.client() as client:
        unsampled = CALLER[:-2] + "00"
        given = client.post("/v1/inpaint", files=files, headers={"traceparent": unsampled}).headers["traceparent"]
        own = client.post("/v1/inpaint", files=files).headers["traceparent"]
        assert "traceparent" not in client.get("/livez").headers
    running.stop()
    assert given[:36] == unsampled[:36]
    assert [int(one[-2:], 16) & 1 for one in (given, own)] == [0, 0], "the flag says that it is sampled"
    assert own[3:35] != given[3:35]
    assert collector.spans == []


@pytest.mark.parametrize(
    ("drawn", "headers", "recorded"),
    [
        pytest.param(0.0, {}, False, id="left out"),
        pytest.param(0.89, {}, False, id="just left out"),
        pytest.param(0.91, {}, True, id="just recorded"),
        pytest.param(0.0, {"traceparent": f"00-{5:032x}-{6:016x}-01"}, True, id="its caller records it"),
        pytest.param(0.99, {"traceparent": f"00-{5:032x}-{6:016x}-00"}, False, id="its caller does not"),
        pytest.param(0.0, {"traceparent": "nonsense"}, False, id="no trace is named: chance decides"),
    ],
)
def test_chance_decides_where_no_caller_has(drawn: float, headers: dict[str, str], recorded: bool) -> None:
    tracer = RequestTracer(TracerProvider().get_tracer("test"), 0.1, lambda bits: int(drawn * 2**bits))
    trace = tracer.begin_trace("POST", "/v1/inpaint", Headers(headers))
    version, trace_id, span_id, flags = trace.traceparent.split("-")
    assert (version, flags) == ("00", "01" if recorded else "00")
    assert trace.recorded is recorded
    assert trace.ids == {"trace_id": trace_id, "span_id": span_id}
    assert int(trace_id, 16)
    assert int(span_id, 16)
    if "nonsense" not in headers.values() and headers:
        assert int(trace_id, 16) == 5


def test_a_failure_is_marked_and_a_refusal_is_traced(serve: Serve, files: Files, collector: OtlpReceiver) -> None:
    go_on = threading.Event()
    running = serve(fake=held(go_on), otlp_endpoint=collector.url, trace_ratio=1)
    with running.client() as client, ThreadPoolExecutor(1) as pool:
        refused = client.post("/v1/inpaint", files={**files, "image": b"GIF89a nonsense"})
        assert refused.status_code == 415
        inside = pool.submit(client.post, "/v1/inpaint", files=files)
        wait_until(lambda: running.service.admission.in_flight == 1)
        running.server._loop.call_soon_threadsafe(running.service.begin_draining)
        wait_until(running.service.admission.draining.is_set)
        failed = client.post("/v1/inpaint", files=files)
        assert failed.status_code == 503
        go_on.set()
        assert inside.result().status_code == 200
    roots = []
    for response in (refused, failed):
        trace_id = response.headers["traceparent"].split("-")[1]
        wait_until(lambda: "POST /v1/inpaint" in collector.of_trace(trace_id))  # noqa: B023 -- called before the next
        roots.append(collector.of_trace(trace_id)["POST /v1/inpaint"])
    assert [root.status.code for root in roots] == [0, 2]


def test_processes_share_a_trace_and_their_logs_name_it(
    tmp_path: Path, photo: bytes, mask: bytes, collector: OtlpReceiver
) -> None:
    settings = {"workers": 1, "otlp_endpoint": collector.url}
    with ServedProcess(tmp_path, **settings) as server:
        headers = {"traceparent": CALLER}
        response = httpx.post(
            f"{server.url}/v1/inpaint", files={"image": photo, "mask": mask}, headers=headers, timeout=30
        )
        assert response.status_code == 200, response.text
        trace_id = CALLER.split("-")[1]
        wait_until(lambda: len(collector.of_trace(trace_id)) == len(STAGES) + 1)
        (link,) = collector.of_trace(trace_id)["infer"].links
        wait_until(lambda: any(span.span_id == link.span_id for span in collector.spans))
        lines = server.lines("request")
    (line,) = (line for line in lines if line["path"] == "/v1/inpaint")
    assert f"00-{line['trace_id']}-{line['span_id']}-01" == response.headers["traceparent"]
    batch = next(span for span in collector.spans if span.span_id == link.span_id)
    assert batch.name == "batch"


def test_the_end_sends_what_is_left(
    serve: Serve, files: Files, collector: OtlpReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    running = serve(otlp_endpoint=collector.url, trace_ratio=1)
    with running.client() as client:
        assert [client.post("/v1/inpaint", files=files).status_code for _ in range(3)] == [200] * 3
    running.stop()
    names = [span.name for span in collector.spans]
    assert {name: names.count(name) for name in (*STAGES, "POST /v1/inpaint", "batch")} == dict.fromkeys(
        (*STAGES, "POST /v1/inpaint", "batch"), 3
    )


def test_a_collector_that_is_not_there_costs_no_request_its_answer(serve: Serve, files: Files, free_port: int) -> None:
    running = serve(otlp_endpoint=f"http://127.0.0.1:{free_port}", trace_ratio=1)
    with running.client() as client:
        assert [client.post("/v1/inpaint", files=files).status_code for _ in range(3)] == [200] * 3
    running.stop()


def test_without_an_endpoint_neither_sdk_nor_exporter_is_imported(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from service.app import open_service
from service.core.settings import Settings
import service.web.server

async def main():
    async with open_service(Settings(results_dir=sys.argv[1], models_dir=sys.argv[1], engine="fake")) as service:
        assert service.tracer is None

asyncio.run(main())
loaded = [name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))]
assert not loaded, loaded  # FastAPI imports the API by itself, where it is installed
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, cwd=ROOT, timeout=60)
