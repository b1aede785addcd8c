"""gRPC refuses what HTTP refuses (keys, scopes, rates, deadlines, sizes, drain), before the message is read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest
from grpc import Compression, StatusCode

from engines.fake import FakeEngine, Hang
from service.grpc import server as grpc_server
from service.grpc.methods import METHODS, SERVICE
from tests.serving.grpc_client import GrpcClient, answer_of, files_request, with_parameters
from tests.serving.key_files import add_key
from tests.serving.local_server import Running
from tests.serving.waiting import wait_until

PUBLIC = {"ServerLive", "ServerReady"}
ALL = [path.removeprefix(SERVICE) for path in METHODS]


@pytest.fixture
def infer(photo: bytes, mask: bytes) -> Any:
    return files_request(photo, mask)


@pytest.fixture
def hanging(serve_grpc: Any) -> Iterator[tuple[Running, Event]]:
    """A server whose engine computes nothing until the event is set."""
    go, warm = Event(), Event()
    running = serve_grpc(
        fake=lambda manifest: FakeEngine(manifest, fault=lambda _: Hang(go) if warm.is_set() else None)
    )
    warm.set()
    yield running, go
    go.set()


def test_every_method_needs_a_key_with_the_scope_for_inference(serve_grpc: Any, keys: Path) -> None:
    right, short = add_key(keys), add_key(keys, scopes=["metrics", "results:read", "results:delete"])
    running = serve_grpc(keys_file=str(keys))
    with GrpcClient(running.grpc_address) as client:
        for method in (*ALL, "ModelStreamInfer", "/inference.GRPCInferenceService/", "/a.B/C"):
            if method in PUBLIC:
                assert client.call(method).code is StatusCode.OK
                assert client.call(method, authorization="Bearer wrong").code is StatusCode.OK
                continue
            none = client.call(method)
            assert (none.code, none.trailing["x-error-code"]) == (StatusCode.UNAUTHENTICATED, "no_key"), method
            assert client.call(method, x_api_key="rtk_0_x").code is StatusCode.UNAUTHENTICATED, method
            assert client.call(method, authorization="Basic eDp5").code is StatusCode.UNAUTHENTICATED, method
            twice = client.call(method, authorization=f"Bearer {right}", x_api_key=right)
            assert twice.trailing["x-error-code"] == "several_keys"
            assert client.call(method, x_api_key=short).code is StatusCode.PERMISSION_DENIED, method
            for answered in (
                client.call(method, x_api_key=right),
                client.call(method, authorization=f"bearer {right}"),
            ):
                assert answered.code not in (
                    *(StatusCode.UNAUTHENTICATED, StatusCode.PERMISSION_DENIED, StatusCode.RESOURCE_EXHAUSTED),
                    *(StatusCode.INTERNAL, StatusCode.UNKNOWN),
                ), (method, answered)


def test_there_is_no_reflection_and_no_other_method(client: GrpcClient) -> None:
    for path in ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/grpc.health.v1.Health/Check"):
        assert client.call(path).code is StatusCode.UNIMPLEMENTED
    answered = client.call("SystemSharedMemoryRegister")
    assert (answered.code, answered.trailing["x-error-code"]) == (StatusCode.UNIMPLEMENTED, "method_not_allowed")
    assert "ModelInfer" in answered.details


def test_rate_and_quota_are_those_of_v1_and_say_when_to_return(serve_grpc: Any, keys: Path, infer: Any) -> None:
    slow, little = add_key(keys, rate_per_s=0.001, burst=1), add_key(keys, requests_per_day=1)
    running = serve_grpc(keys_file=str(keys))
    with GrpcClient(running.grpc_address, slow) as client:
        assert client.call("ModelInfer", infer).code is StatusCode.OK
        late = client.call("ModelInfer", infer)
        assert late.code is StatusCode.RESOURCE_EXHAUSTED
        assert late.trailing["x-error-code"] == "rate_limited"
        assert 900 < int(late.trailing["retry-after"]) <= 1000
        assert int(late.trailing["grpc-retry-pushback-ms"]) == 1000 * int(late.trailing["retry-after"])
    with GrpcClient(running.grpc_address, little) as client:
        for method in ("RepositoryIndex", "ServerMetadata"):  # methods that ask for no pictures
            assert client.call(method).code is StatusCode.OK
        assert client.call("ModelInfer", infer).code is StatusCode.OK
        assert client.call("ModelInfer", infer).trailing["x-error-code"] == "quota_exhausted"


def test_the_key_is_checked_before_the_message_is_read(serve_grpc: Any, keys: Path) -> None:
    add_key(keys)
    running = serve_grpc(keys_file=str(keys), max_body_mb=1.0)
    with GrpcClient(running.grpc_address) as client:
        assert client.call("ModelInfer", bytes(2**25)).code is StatusCode.UNAUTHENTICATED  # not too large


def test_deadlines_are_kept(client: GrpcClient, infer: Any) -> None:
    late = client.call("ModelInfer", infer, x_request_timeout_ms="0.001")
    assert (late.code, late.trailing["x-error-code"]) == (StatusCode.DEADLINE_EXCEEDED, "deadline_exceeded")
    assert client.call("ModelInfer", infer, timeout=0.0).code is StatusCode.DEADLINE_EXCEEDED
    assert client.call("ModelInfer", infer, timeout=1e-9).code is StatusCode.DEADLINE_EXCEEDED
    assert client.call("ModelInfer", infer, timeout=1e7).code is StatusCode.OK
    assert answer_of(client.start("ModelInfer", infer, timeout=None)).code is StatusCode.OK
    for name, wrong in (("x_request_timeout_ms", "0"), ("x_request_timeout_ms", "1e12"), ("x_priority", "11")):
        assert client.call("ModelInfer", infer, **{name: wrong}).code is StatusCode.INVALID_ARGUMENT


def test_a_deadline_ends_the_work_and_is_logged_as_one(hanging: tuple[Running, Event], infer: Any) -> None:
    running, _ = hanging
    with GrpcClient(running.grpc_address) as client:
        assert client.call("ModelInfer", infer, timeout=0.3).code is StatusCode.DEADLINE_EXCEEDED
        ours = client.call("ModelInfer", with_parameters(infer, timeout=300_000))
        assert (ours.code, ours.trailing["x-error-code"]) == (StatusCode.DEADLINE_EXCEEDED, "deadline_exceeded")
    wait_until(lambda: running.service.admission.in_flight == 0)
    with running.client() as http:
        wait_until(lambda: 'ModelInfer",model="photos/1",code="504"' in _ordered(http.get("/metrics").text))


def _ordered(exposition: str) -> str:
    """Return the labels of the request counters, a line each, in the order endpoint, model, code."""
    lines = [line for line in exposition.splitlines() if line.startswith("retouch_request_duration_seconds_count")]
    found = []
    for line in lines:
        labels = dict(part.split("=", 1) for part in line[line.index("{") + 1 : line.index("}")].split(","))
        found.append(f"endpoint={labels['endpoint']},model={labels['model']},code={labels['code']}")
    return "\n".join(found)


def test_a_client_that_disconnects_frees_its_slot_and_is_counted(hanging: tuple[Running, Event], infer: Any) -> None:
    running, _ = hanging
    admission = running.service.admission
    with GrpcClient(running.grpc_address) as client:
        cancelled = client.start("ModelInfer", infer)
        wait_until(lambda: admission.in_flight == 1)
        cancelled.cancel()
        wait_until(lambda: admission.in_flight == 0)
        kept = client.start("ModelInfer", infer)
        wait_until(lambda: admission.in_flight == 1)
        assert not kept.done()
    wait_until(lambda: admission.in_flight == 0)  # closing the channel cancelled the call
    assert (admission.bodies_bytes, admission.uploading) == (0, 0)
    with running.client() as http:
        wait_until(lambda: "retouch_cancelled_total 2.0" in http.get("/metrics").text)


def test_a_full_queue_is_resource_exhausted_with_a_time_to_return(serve_grpc: Any, infer: Any) -> None:
    running = serve_grpc()
    admission = running.service.admission
    admission.bodies_bytes = int(admission.max_bodies_bytes)  # as if other requests held it
    with GrpcClient(running.grpc_address) as client:
        full = client.call("ModelInfer", infer)
        assert (full.code, full.trailing["x-error-code"]) == (StatusCode.RESOURCE_EXHAUSTED, "overloaded")
        assert int(full.trailing["retry-after"]) >= 1
        admission.bodies_bytes = 0
        assert client.call("ModelInfer", infer).code is StatusCode.OK


def test_a_draining_server_is_unavailable_and_finishes_what_it_has(hanging: tuple[Running, Event], infer: Any) -> None:
    running, go = hanging
    with GrpcClient(running.grpc_address) as client:
        first = client.start("ModelInfer", infer)
        wait_until(lambda: running.service.admission.in_flight == 1)
        running.server._loop.call_soon_threadsafe(running.service.begin_draining)
        wait_until(running.service.admission.draining.is_set)
        refused = client.call("ModelInfer", infer)
        assert (refused.code, refused.trailing["x-error-code"]) == (StatusCode.UNAVAILABLE, "shutting_down")
        assert int(refused.trailing["retry-after"]) >= 1
        go.set()
        assert answer_of(first).code is StatusCode.OK
    running.thread.join(30)
    assert not running.thread.is_alive()
    assert running.service.drain.clean


def test_calls_that_come_while_a_server_ends_are_refused_by_it(
    serve_grpc: Any, infer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC would end calls that have not reached our handlers with CANCELLED or INTERNAL, which no client retries."""
    monkeypatch.setattr(grpc_server, "_QUIET_STEPS", 40)  # 1 s: a pause of this client is not the end of its calls
    monkeypatch.setattr(grpc_server, "_MAX_SETTLE_S", 60.0)
    running = serve_grpc()
    with GrpcClient(running.grpc_address) as client:
        assert client.call("ModelInfer", infer).code is StatusCode.OK
        running.server._loop.call_soon_threadsafe(running.service.begin_draining)
        wait_until(running.service.admission.draining.is_set)
        until = time.monotonic() + 0.8
        refused = [client.call("ModelInfer", infer)]
        while time.monotonic() < until:
            refused.append(client.call("ModelInfer", infer))
    codes = {(one.code, one.trailing.get("x-error-code")) for one in refused}
    assert codes == {(StatusCode.UNAVAILABLE, "shutting_down")}
    running.thread.join(30)
    assert running.service.drain.clean


def test_a_message_over_the_limit_is_refused_and_its_memory_freed(server: Running, client: GrpcClient) -> None:
    assert client.call("ModelInfer", bytes(2**21 + 1)).code is StatusCode.RESOURCE_EXHAUSTED
    assert client.call("ModelInfer", bytes(2**26)).code is StatusCode.RESOURCE_EXHAUSTED
    bomb = client.call("ModelInfer", bytes(2**26), compression=Compression.Gzip)
    assert bomb.code is StatusCode.RESOURCE_EXHAUSTED
    assert client.call("RepositoryIndex", bytes(5000)).code is StatusCode.INVALID_ARGUMENT
    wait_until(lambda: server.service.admission.uploading == 0)
    assert server.service.admission.bodies_bytes == 0


def test_a_message_that_does_not_arrive_is_given_up(serve_grpc: Any, infer: Any) -> None:
    running = serve_grpc(body_timeout_s=0.2)
    with GrpcClient(running.grpc_address) as client:
        for path in ("ModelInfer", "RepositoryIndex"):
            never = client.channel.stream_unary(f"{SERVICE}{path}", None, None)
            waiting = Event()
            began = time.monotonic()
            answered = answer_of(never.future(iter(_Silent(waiting)), timeout=30))
            waiting.set()
            assert (answered.code, answered.trailing["x-error-code"]) == (
                StatusCode.DEADLINE_EXCEEDED,
                "upload_timeout",
            )
            assert time.monotonic() - began < 10
        empty = answer_of(client.channel.stream_unary(f"{SERVICE}ModelInfer", None, None).future(iter(())))
        assert (empty.code, empty.trailing["x-error-code"]) == (StatusCode.INVALID_ARGUMENT, "invalid_request")
    assert running.service.admission.uploading == 0


class _Silent:
    """A stream that sends no message until it is released."""

    def __init__(self, released: Event) -> None:
        self._released = released

    def __iter__(self) -> Iterator[bytes]:
        self._released.wait(30)
        yield from ()


def test_the_same_key_of_idempotency_is_answered_once_and_is_each_users_own(
    serve_grpc: Any, keys: Path, infer: Any
) -> None:
    first, second = add_key(keys), add_key(keys, name="other")
    running = serve_grpc(keys_file=str(keys))
    with GrpcClient(running.grpc_address, first) as one, GrpcClient(running.grpc_address, second) as other:
        made = one.call("ModelInfer", infer, idempotency_key="k")
        again = one.call("ModelInfer", infer, idempotency_key="k")
        assert again.message == made.message
        assert again.trailing["location"] == made.trailing["location"]
        assert again.trailing["idempotency-replayed"] == "true"
        theirs = other.call("ModelInfer", infer, idempotency_key="k")
        assert "idempotency-replayed" not in theirs.trailing
        assert theirs.trailing["location"] != made.trailing["location"]
        mismatch = one.call("ModelInfer", with_parameters(infer, quality=3), idempotency_key="k")
        assert mismatch.trailing["x-error-code"] == "idempotency_mismatch"


def test_a_result_belongs_to_the_key_that_asked_by_grpc(serve_grpc: Any, keys: Path, infer: Any) -> None:
    scopes = ["inference", "results:read", "results:delete"]
    mine, theirs = add_key(keys, scopes=scopes), add_key(keys, name="other", scopes=scopes)
    running = serve_grpc(keys_file=str(keys))
    with GrpcClient(running.grpc_address, mine) as client, running.client() as http:
        path = client.call("ModelInfer", infer).trailing["location"]

        def listed(key: str) -> list[str]:
            reply = http.get("/v1/results", headers={"X-API-Key": key})
            return [one["id"] for one in reply.json()["results"]]

        wait_until(lambda: listed(mine) == [path.rpartition("/")[2]])
        assert listed(theirs) == []
        assert http.delete(path, headers={"X-API-Key": theirs}).status_code == 404
        assert http.delete(path, headers={"X-API-Key": mine}).status_code < 300


def test_requests_are_counted_with_those_of_http(server: Running, client: GrpcClient, infer: Any) -> None:
    client.infer(infer)
    client.call("ModelReady")
    text = httpx.get(f"{server.url}/metrics").text
    counted = _ordered(text)
    assert f'endpoint="{SERVICE}ModelInfer",model="photos/1",code="200"' in counted
    assert f'endpoint="{SERVICE}ModelReady",model="",code="404"' in counted
