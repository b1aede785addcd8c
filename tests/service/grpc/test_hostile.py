"""Hostile clients of a real server: each gets a status that blames the client, in bounded memory."""

from __future__ import annotations

import io
import random
import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest
from grpc import Compression, StatusCode
from PIL import Image

from tests.service.grpc.test_requests import WRONG
from tests.serving.bad_images import broken_images
from tests.serving.grpc_client import GrpcClient, answer_of, files_request
from tests.serving.local_server import Running
from tests.serving.waiting import wait_until

pytestmark = pytest.mark.slow
OURS = (StatusCode.INTERNAL, StatusCode.UNKNOWN)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.fixture(autouse=True)
def _steady(server: Running) -> Iterator[None]:
    """After each test, wait until admission counts no request and no body."""
    yield
    admission = server.service.admission
    wait_until(lambda: (admission.bodies_bytes, admission.in_flight, admission.uploading) == (0, 0, 0))


def test_wrong_requests_are_invalid(client: GrpcClient) -> None:
    for message in WRONG:
        answered = client.call("ModelInfer", message)
        assert answered.code in (StatusCode.INVALID_ARGUMENT, StatusCode.NOT_FOUND), (message[:80], answered)
        assert answered.trailing["x-error-code"]


def test_pictures_that_are_none_are_invalid(client: GrpcClient, mask: bytes) -> None:
    for name, data in broken_images().items():
        if len(data) < 1_000_000:
            answered = client.call("ModelInfer", files_request(data, mask))
            assert answered.code is StatusCode.INVALID_ARGUMENT, (name, answered)


def test_changed_messages_are_never_the_servers_fault(client: GrpcClient, photo: bytes, mask: bytes) -> None:
    whole, chance = files_request(photo, mask).SerializeToString(), random.Random(1)
    codes: Counter[StatusCode] = Counter()
    for method in ("ModelInfer", "ModelReady", "ModelConfig", "ModelStatistics", "RepositoryIndex"):
        for _ in range(120):
            message = bytearray(whole if method == "ModelInfer" else b"\x0a\x06photos\x12\x011")
            for _ in range(chance.randint(1, 4)):
                message[chance.randrange(min(len(message), 120))] = chance.randrange(256)
            codes[client.call(method, bytes(message[: chance.randint(1, len(message))])).code] += 1
    assert not set(codes) & set(OURS), codes
    assert codes[StatusCode.INVALID_ARGUMENT] > 100


def test_bombs_are_refused_in_bounded_memory(client: GrpcClient) -> None:
    before = psutil.Process().memory_info().rss
    for bomb in (
        b"\x2a\x00" * 2**20,
        b"\x3a\x00" * 2**20,
        b"\x22\x00" * 2**20,
        b"\x1a" + b"\x80\x80\x40" + bytes(2**20),
    ):
        assert client.call("ModelInfer", bomb).code is StatusCode.INVALID_ARGUMENT
    for zeros in (2**21 + 1, 2**28):
        answered = client.call("ModelInfer", bytes(zeros), compression=Compression.Gzip)
        assert answered.code is StatusCode.RESOURCE_EXHAUSTED
    assert client.call("ModelInfer", b"", x=("y" * 70_000)).code in (
        StatusCode.RESOURCE_EXHAUSTED,
        StatusCode.INVALID_ARGUMENT,
    )
    assert psutil.Process().memory_info().rss - before < 2**28  # the client's own 256 MiB are in this process


def test_a_picture_larger_than_allowed_is_refused_by_its_header(client: GrpcClient, mask: bytes) -> None:
    file = io.BytesIO()
    Image.fromarray(np.zeros((9_000, 9_000), np.uint8)).save(file, "PNG")
    answered = client.call("ModelInfer", files_request(file.getvalue(), mask))
    assert (answered.code, answered.trailing["x-error-code"]) == (StatusCode.INVALID_ARGUMENT, "too_many_pixels")


def test_five_hundred_calls_at_once_are_all_answered(client: GrpcClient, photo: bytes, mask: bytes) -> None:
    request = files_request(photo, mask, id="one")
    futures = [client.start("ModelInfer", request) for _ in range(500)]
    answers = [answer_of(future) for future in futures]
    codes = Counter(answered.code for answered in answers)
    assert set(codes) <= {StatusCode.OK, StatusCode.RESOURCE_EXHAUSTED}, {one.details for one in answers}
    assert codes[StatusCode.OK] > 100


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        PREFACE,
        PREFACE + bytes(9),
        PREFACE + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\xff" * 400,
        PREFACE + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00" + b"\x00\x00\x08\x06\x00\x00\x00\x00\x00" * 2 + bytes(8) * 2,
    ],
    ids=["nothing", "HTTP/1.1", "TLS", "preface", "empty frame", "garbage", "pings"],
)
def test_bytes_that_are_not_grpc_disturb_no_client(
    server: Running, client: GrpcClient, sent: bytes, photo: bytes, mask: bytes
) -> None:
    host, port = server.grpc_address.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(sent)
        connection.settimeout(0.2)
        received: Any = b""
        try:
            received = connection.recv(65_536)
        except (TimeoutError, OSError):
            received = b""
        assert isinstance(received, bytes)
        assert client.infer(files_request(photo, mask))
