"""Hostile requests to each foreign API are answered in the API's error format, never with 500, in bounded memory."""

from __future__ import annotations

import base64
import gzip
import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

from tests.service.compat.foreign_requests import EDIT, GOOD, IMG2IMG, INFER, IOPAINT, OF_JSON, ForeignRequest, as_text
from tests.service.compat.open_inference.infer_requests import LENGTH, as_binary, as_json, element
from tests.serving import image_files as files
from tests.serving.bad_images import broken_images
from tests.serving.bad_request import MASK, MULTIPART, PHOTO, body_of, part
from tests.serving.local_server import Running

pytestmark = pytest.mark.slow
JSON = "application/json"
BOMBS = {
    "png bomb": files.png_bomb(),
    "png of 2^31 - 1 squared": files.PNG_SIGNATURE + files.ihdr(2**31 - 1, 2**31 - 1),
    "gif": files.saved(np.zeros((4, 4, 3), np.uint8), "GIF"),
    **{name: data for name, data in broken_images().items() if len(data) < 100_000},
}


def with_image(good: ForeignRequest, image: bytes) -> bytes:
    """Return the body of a request with another image."""
    if good is EDIT:
        return body_of(part("image", image, "a"), part("mask", MASK, "b"), part("mask_mode", b"white"))
    if good is INFER:
        return json.dumps(as_json(image, MASK)).encode()
    return good.body.replace(as_text(PHOTO).encode(), as_text(image).encode())


def bad_json() -> dict[str, bytes]:
    return {
        "nothing": b"",
        "no object": b"[1, 2]",
        "text": b"hello",
        "cut": b'{"image": "AAA',
        "deep": b'{"image": ' + b"[" * 200_000,
        "deep objects": b'{"a": ' + b'{"a": ' * 100_000,
        "many values": b'{"a": [' + b"0," * 200_000 + b"0]}",
        "many fields": b"{" + b",".join(b'"%d": 0' % n for n in range(50_000)) + b"}",
        "no utf-8": b'{"image": "\xff\xfe", "prompt": "\xff"}',
        "half a surrogate": b'{"image": "\\ud800", "mask": "\\ud800"}',
        "huge number": b'{"seed": 1' + b"0" * 5_000 + b', "image": 7}',
        "infinite": b'{"seed": 1e999, "sd_seed": 1e999, "image": "AAAA", "mask": "AAAA"}',
        "null": b"null",
        "nulls": b'{"image": null, "mask": null, "inputs": null, "init_images": null}',
        "wrong types": b'{"image": {}, "mask": [], "inputs": {}, "init_images": {}, "parameters": [], "outputs": 7}',
        "lists of everything": b'{"init_images": [null, 7, {}], "inputs": [null, 7, {}], "image": [[]]}',
        "only spaces": b" " * 1_000_000,
    }


def asked(client: httpx.Client, good: ForeignRequest, body: Any, **headers: str) -> httpx.Response:
    path = good.path
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(path, content=body, headers={**good.headers, **named})


def check(reply: httpx.Response, good: ForeignRequest) -> None:
    assert 400 <= reply.status_code < 500, (reply.status_code, reply.text[:300])
    assert len(good.message(reply.json())) < 1_000


@pytest.fixture
def steady(server: Running) -> Iterator[None]:
    """After the test, check that admission counts no request and no body."""
    yield
    admission = server.service.admission
    assert (admission.bodies_bytes, admission.in_flight, admission.uploading) == (0, 0, 0)


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("good", OF_JSON, ids=lambda good: good.api)
def test_json_that_is_none_is_refused(client: httpx.Client, good: ForeignRequest) -> None:
    for body in bad_json().values():
        check(asked(client, good, body), good)


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("good", GOOD, ids=lambda good: good.api)
def test_pictures_that_are_none_are_refused(client: httpx.Client, good: ForeignRequest) -> None:
    before = psutil.Process().memory_info().rss
    for image in BOMBS.values():
        check(asked(client, good, with_image(good, image)), good)
    assert psutil.Process().memory_info().rss - before < 2**28


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("good", GOOD, ids=lambda good: good.api)
def test_types_that_a_foreign_page_could_send_unasked_are_refused(client: httpx.Client, good: ForeignRequest) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "multipart/mixed"):
        check(asked(client, good, good.body, Content_Type=kind), good)


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("good", [EDIT, IOPAINT, IMG2IMG], ids=lambda good: good.api)
def test_a_packed_body_is_refused_where_the_api_knows_none(client: httpx.Client, good: ForeignRequest) -> None:
    refused = asked(client, good, gzip.compress(good.body), Content_Encoding="gzip")
    assert refused.status_code == 415
    check(refused, good)


@pytest.mark.usefixtures("steady")
def test_forms_that_are_none_are_refused(client: httpx.Client) -> None:
    image, mask = part("image", PHOTO, "a"), part("mask", MASK, "b")
    for body in (
        b"",
        body_of(),
        body_of(mask),
        body_of(image, image, mask),
        body_of(image, part("image[]", PHOTO, "b"), mask),
        body_of(part("image[0]", PHOTO, "a"), part("image[1]", PHOTO, "b"), mask),
        body_of(part("image[a]", PHOTO, "a"), mask),
        body_of(image, mask, mask),
        body_of(image, mask, part("other", PHOTO, "c")),
        body_of(part("image", b"http://127.0.0.1/a.png"), mask),
        body_of(image, part("mask", b"http://127.0.0.1/a.png")),
        body_of(part("image", b"", "a"), mask),
        body_of(image, part("mask", b"", "a")),
        body_of(image, mask, part("prompt", b"a" * 200_000)),
        body_of(image, mask, *(part(f"field{n}", b"1") for n in range(100))),
        body_of(image, mask, part("n", b"1" * 4_000)),
        body_of(image, mask, part("n", b"nan")),
        body_of(image, mask, part("mask_mode", b"\xff")),
        body_of(image, mask)[:-9],
    ):
        check(asked(client, EDIT, body), EDIT)
    check(client.post("/v1/images/generations", content=b"[]", headers={"Content-Type": JSON}), EDIT)
    check(client.post("/v1/images/generations", json={"n": {}, "model": 7}), EDIT)
    for field in ("response_format", "stream", "save", "seed", "output_compression", "model"):
        wrong: tuple[object, ...] = ({}, [], [[]], 2**70, -1, 1e300, "\ud800", "a" * 100_000)
        for value in wrong:
            reply = client.post(
                "/v1/images/generations", content=json.dumps({field: value}), headers={"Content-Type": JSON}
            )
            check(reply, EDIT)


@pytest.mark.usefixtures("steady")
@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
def test_a_bomb_is_refused_before_it_is_unpacked(client: httpx.Client, pack: Any) -> None:
    bomb = pack(b" " * 2**30)
    assert len(bomb) < 2**21
    before = psutil.Process().memory_info().rss
    refused = asked(client, INFER, bomb, Content_Encoding="gzip")
    assert psutil.Process().memory_info().rss - before < 2**27
    assert refused.status_code == 413
    check(refused, INFER)


@pytest.mark.usefixtures("steady")
def test_broken_packed_bodies_are_refused(client: httpx.Client) -> None:
    packed = gzip.compress(INFER.body)
    for body in (b"", b"hello", packed[:-9], packed + packed, packed + b"x", packed[:20] + b"\0" * 20 + packed[40:]):
        check(asked(client, INFER, body, Content_Encoding="gzip"), INFER)
    check(asked(client, INFER, packed, Content_Encoding="br"), INFER)
    check(asked(client, INFER, packed, Content_Encoding="gzip, gzip"), INFER)


def wrong_lengths() -> Iterator[tuple[bytes, dict[str, str]]]:
    """Requests whose parts differ from their declared lengths."""
    image, mask = ("BYTES", [1], element(PHOTO)), ("BYTES", [1], element(MASK))
    body, header = as_binary({"image": image, "mask": mask})
    for length in ("-1", "x", "", "1e3", "0", "1", str(len(body) + 1), str(2**64), "9" * 400):
        yield body, {LENGTH: length}
    yield body + b"x", header
    yield body[:-1], header
    sizes: tuple[Any, ...] = (-1, -(2**70), 2**31, 2**63, 2**70, "x", [], {})
    for size in sizes:
        entry = {"name": "image", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": size}}
        head = json.dumps({"inputs": [entry]}).encode()
        yield head + PHOTO, {LENGTH: str(len(head))}
    for data in (b"", b"abc", struct.pack("<I", 0), struct.pack("<I", 2**32 - 1) + PHOTO, element(PHOTO) * 2):
        yield as_binary({"image": ("BYTES", [1], data), "mask": mask})
    for shape in (
        *([1, 2**30, 1, 1], [1, 2**15, 2**15, 1], [1, 2**63, 2**63, 3], [1, 2**70, 1, 3], [1, -64, -64, 3]),
        *([2, 64, 64, 3], [1, 0, 64, 3], [1, 64, 64, 2], [64, 64, 3], [], [1], [1, 1, 1, 1, 1], [1] * 5_000),
    ):
        yield as_binary({"image": ("UINT8", shape, bytes(64 * 64 * 3)), "mask": mask})
    for shape in ([], [2], [2**31], [1, 64, 64, 3]):
        yield as_binary({"image": ("BYTES", shape, element(PHOTO)), "mask": mask})
    for datatype in ("FP32", "UINT16", "", "bytes", "B" * 10_000):
        yield as_binary({"image": (datatype, [1], element(PHOTO)), "mask": mask})
    yield as_binary({"image": image})
    yield as_binary({"image": image, "mask": mask, "other": mask})
    yield as_binary({"image": image, "mask": mask}, outputs=[{"name": "nothing"}])
    yield as_binary({"image": image, "mask": mask}, outputs=[{"name": "output"}] * 2)
    yield as_binary({"image": image, "mask": mask}, outputs=[{"name": "output", "parameters": {"classification": 3}}])
    shared = {"shared_memory_region": "r", "shared_memory_byte_size": 9}
    yield as_binary({"image": image, "mask": mask}, outputs=[{"name": "output", "parameters": shared}])
    entry = {"name": "image", "datatype": "BYTES", "shape": [1], "parameters": shared}
    yield json.dumps({"inputs": [entry]}).encode(), {}
    pixels = {"image": ("UINT8", [1, 64, 64, 3], bytes(64 * 64 * 3)), "mask": ("UINT8", [1, 64, 64], bytes(64 * 64))}
    yield as_binary(pixels, {"binary_data_output": False})


@pytest.mark.usefixtures("steady")
def test_wrong_lengths_shapes_and_types_are_refused(client: httpx.Client) -> None:
    for body, headers in wrong_lengths():
        reply = client.post(INFER.path, content=body, headers=headers)
        assert 400 <= reply.status_code < 500, (headers, body[:200], reply.text[:300])
        assert isinstance(reply.json()["error"], str)


@pytest.mark.usefixtures("steady")
def test_an_input_that_is_sent_twice_is_refused(client: httpx.Client) -> None:
    one = {"name": "image", "datatype": "BYTES", "shape": [1], "data": [base64.b64encode(PHOTO).decode()]}
    check(client.post(INFER.path, json={"inputs": [one, one]}), INFER)


@pytest.mark.usefixtures("steady")
def test_a_result_that_would_be_huge_is_refused_before_it_is_made(client: httpx.Client) -> None:
    good = json.loads(IMG2IMG.body)
    for width, height in ((2**15, 2**15), (1, 50_000_001), (2**63, 1), (-1, -1), (1, 0)):
        check(client.post(IMG2IMG.path, json={**good, "width": width, "height": height}), IMG2IMG)


@pytest.mark.usefixtures("steady")
def test_small_requests_that_are_not_for_pictures_are_bounded_too(client: httpx.Client) -> None:
    for path in ("/api/v1/model", "/sdapi/v1/options"):
        for body in bad_json().values():
            reply = client.post(path, content=body, headers={"Content-Type": JSON})
            assert reply.status_code < 500, (path, reply.text[:200])
    for name in ("timeout", "priority", "seed", "samples", "binary_data_output", "mask_mode"):
        wrong: tuple[object, ...] = ({}, [], "x", -1, 2**70, 1.5, 1e300)
        for value in wrong:
            reply = client.post(INFER.path, json={**json.loads(INFER.body), "parameters": {name: value}})
            assert reply.status_code < 500, (name, value, reply.text[:200])
            assert reply.status_code == 200 or isinstance(reply.json()["error"], str)
    for body in (b" " * 5_000, b"[" * 3_000, b"x"):
        check(client.post("/v2/repository/index", content=body), INFER)
    assert client.post("/api/v1/gen-info", content=bytes(2**22)).status_code == 413


def test_names_in_the_ignored_header_cannot_break_the_reply(client: httpx.Client) -> None:
    names = {"a\r\nX-Evil: 1": 1, "ü": 1, "b" * 100: 1, "plain": 1}
    reply = client.post(IOPAINT.path, json={**json.loads(IOPAINT.body), **names})
    assert (reply.status_code, reply.headers["X-Ignored-Fields"]) == (200, "plain")
    form = body_of(part("image", PHOTO, "a"), part("mask", MASK, "b"), part("mask_mode", b"white"), part("x y", b"1"))
    assert client.post(EDIT.path, content=form, headers={"Content-Type": MULTIPART}).status_code == 200
