"""The HTTP contract, over a real socket."""

from __future__ import annotations

import asyncio
import base64
import io
import itertools
import json
import socket
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPResponse
from typing import Any

import numpy as np
import pytest
from PIL import Image

from service.core.call import Timings
from service.core.pictures import Size
from service.core.reply import Encoded, Reply
from service.core.schemas import ImageReply, ImagesReply
from service.web.responses import image_response
from tests.service.web.replies import Files, Serve, check_problem
from tests.serving.local_server import Running
from tests.serving.waiting import wait_until

LARGE = bytes(2**20 + 1)


def pixels(body: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(body)))


def test_an_image_and_a_mask_give_a_filled_image_that_is_bit_identical_outside_the_mask(
    server: Running, files: Files, photo: bytes, mask: bytes
) -> None:
    with server.client() as client:
        response = client.post("/v1/inpaint", files=files)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "image/png"
    before, after, hole = pixels(photo), pixels(response.content), pixels(mask) >= 128
    np.testing.assert_array_equal(before[~hole], after[~hole])
    assert (before[hole] != after[hole]).mean() > 0.5


def test_a_reply_says_what_made_it_and_where_the_time_went(server: Running, files: Files) -> None:
    with server.client() as client:
        headers = client.post("/v1/inpaint", files=files, headers={"X-Request-ID": "my-request"}).headers
    assert headers["x-request-id"] == "my-request"
    assert headers["x-model"] == "photos/1"
    assert headers["x-engine"] == "fake/fp32"
    assert headers["x-batch-size"] == "1"
    assert float(headers["x-mask-coverage"]) == pytest.approx(16 * 16 / 64**2)
    stages = dict(part.split(";dur=") for part in headers["server-timing"].split(", "))
    assert list(stages) == ["memory", "decode", "preprocess", "queue", "infer", "postprocess", "encode"]
    assert all(float(milliseconds) >= 0 for milliseconds in stages.values())


def test_an_unsafe_request_id_is_replaced(server: Running) -> None:
    with server.client() as client:
        given = client.get("/livez", headers={"X-Request-ID": "a b;c"}).headers["x-request-id"]
    assert len(given) == 32


def test_translate_gives_an_image_of_the_same_size(server: Running, photo: bytes) -> None:
    with server.client() as client:
        response = client.post("/v1/translate", files={"image": photo})
    assert response.status_code == 200
    assert response.headers["x-model"] == "facades/1"
    assert "x-mask-coverage" not in response.headers
    np.testing.assert_allclose(pixels(response.content), 255 - pixels(photo), atol=1)


@pytest.mark.parametrize(
    ("data", "headers", "media_type"),
    [
        ({"format": "jpeg"}, {}, "image/jpeg"),
        ({"format": "webp", "quality": "50"}, {"Accept": "image/png"}, "image/webp"),
        ({}, {"Accept": "image/jpeg"}, "image/jpeg"),
        ({}, {"Accept": "*/*"}, "image/png"),
    ],
)
def test_the_format_is_that_of_the_field_or_else_of_the_accept_header(
    server: Running, files: Files, data: dict[str, str], headers: dict[str, str], media_type: str
) -> None:
    with server.client() as client:
        response = client.post("/v1/inpaint", files=files, data=data, headers=headers)
    assert response.headers["content-type"] == media_type
    assert Image.open(io.BytesIO(response.content)).get_format_mimetype() == media_type


def test_json_gives_the_same_as_the_image_and_its_headers(server: Running, files: Files) -> None:
    with server.client() as client:
        image = client.post("/v1/inpaint", files=files)
        reply = client.post("/v1/inpaint", files=files, headers={"Accept": "application/json"})
    body = reply.json()
    assert base64.b64decode(body["image_base64"]) == image.content
    assert (body["media_type"], body["width"], body["height"]) == ("image/png", 64, 64)
    assert body["model"] == reply.headers["x-model"] == "photos/1"
    assert body["result_url"] == reply.headers["location"]
    assert body["mask_coverage"] == pytest.approx(0.0625)


def test_mask_modes_select_what_they_say(server: Running, photo: bytes, mask: bytes) -> None:
    inverted = Image.fromarray(255 - pixels(mask))
    alpha = Image.new("LA", (64, 64))
    alpha.putalpha(inverted)
    results = []
    with server.client() as client:
        for mode, picture in (("white", Image.open(io.BytesIO(mask))), ("black", inverted), ("alpha", alpha)):
            file = io.BytesIO()
            picture.save(file, "PNG")
            response = client.post(
                "/v1/inpaint", files={"image": photo, "mask": file.getvalue()}, data={"mask_mode": mode}
            )
            assert response.status_code == 200, response.text
            results.append(response.content)
    assert results[0] == results[1] == results[2]


def test_a_mask_of_another_size_is_refused_unless_resizing_is_asked_for(server: Running, photo: bytes) -> None:
    small = io.BytesIO()
    Image.fromarray(np.eye(32, dtype=np.uint8) * 255).save(small, "PNG")
    files = {"image": photo, "mask": small.getvalue()}
    with server.client() as client:
        detail = check_problem(client.post("/v1/inpaint", files=files), 400, "sizes_differ")["detail"]
        assert "64×64" in detail
        assert "32×32" in detail
        assert client.post("/v1/inpaint", files=files, data={"mask_resize": "nearest"}).status_code == 200


@pytest.mark.parametrize("strategy", ["auto", "crop", "whole"])
def test_several_holes_in_a_large_image_are_all_filled(server: Running, strategy: str) -> None:
    before = np.full((300, 500, 3), 90, np.uint8)
    before[:, ::2] = 110
    hole = np.zeros((300, 500), np.uint8)
    for row, column in ((5, 5), (150, 250), (280, 480)):
        hole[row : row + 15, column : column + 15] = 255
    files = {}
    for name, picture in (("image", before), ("mask", hole)):
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "PNG")
        files[name] = file.getvalue()
    with server.client() as client:
        response = client.post("/v1/inpaint", files=files, data={"strategy": strategy})
    assert response.status_code == 200, response.text
    after = pixels(response.content)
    np.testing.assert_array_equal(before[hole == 0], after[hole == 0])


def test_unknown_paths_and_methods_are_problems_too(server: Running) -> None:
    with server.client() as client:
        check_problem(client.get("/v1/nothing"), 404, "not_found")
        response = client.get("/v1/inpaint")
        check_problem(response, 405, "method_not_allowed")
        assert response.headers["allow"] == "POST"


def test_a_deadline_that_has_no_chance_is_answered_504(server: Running, files: Files) -> None:
    with server.client() as client:
        response = client.post("/v1/inpaint", files=files, headers={"X-Request-Timeout-Ms": "0.001"})
        check_problem(response, 504, "deadline_exceeded")
        response = client.post("/v1/inpaint", files=files, headers={"X-Request-Timeout-Ms": "soon"})
        check_problem(response, 422, "invalid_option")


@pytest.mark.parametrize("name", ["Idempotency-Key", "X-Request-Timeout-Ms", "X-Priority"])
def test_a_header_that_has_one_value_is_refused_when_it_is_sent_twice(server: Running, files: Files, name: str) -> None:
    with server.client() as client:
        once = client.post("/v1/inpaint", files=files, headers=[(name, "9")])
        assert once.status_code in (200, 504), once.text
        twice = client.post("/v1/inpaint", files=files, headers=[(name, "9"), (name.lower(), "8")])
        check_problem(twice, 422, "invalid_option")
        assert f"{name} is sent 2 times" in twice.json()["detail"]


def test_a_body_that_does_not_come_in_time_is_given_up(serve: Serve) -> None:
    running = serve(body_timeout_s=0.2)
    head = b"POST /v1/inpaint HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    address = running.url.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1])), timeout=10) as connection:
        connection.sendall(head + b"Content-Length: 1000\r\nX-Request-Timeout-Ms: 86400000\r\n\r\n--b")
        answer = HTTPResponse(connection)
        answer.begin()
        body = answer.read()
    assert answer.status == 408
    assert b"upload_timeout" in body


def test_repeated_headers_are_read_as_one_list(server: Running, files: Files) -> None:
    with server.client() as client:
        several = [("Prefer", "wait=5"), ("Prefer", "respond-async")]
        assert client.post("/v1/inpaint", files=files, headers=several).status_code == 202
        accepts = [("Accept", "image/gif"), ("Accept", "image/webp")]
        assert client.post("/v1/inpaint", files=files, headers=accepts).headers["content-type"] == "image/webp"


def test_vary_says_that_the_reply_depends_on_accept(server: Running, files: Files) -> None:
    with server.client() as client:
        reply = client.post("/v1/inpaint", files=files)
        assert reply.headers["vary"] == "Accept"
        stored = client.get(reply.headers["location"])
        assert stored.headers["vary"] == "Accept"
        assert "immutable" in stored.headers["cache-control"]


def test_a_trailing_slash_is_another_path_and_no_redirect(server: Running) -> None:
    with server.client() as client:
        check_problem(client.get("/v1/models/", headers={"Host": "elsewhere.localhost"}), 404, "not_found")


def test_pictures_wait_for_memory_and_each_other(serve: Serve, files: Files) -> None:
    running = serve(max_memory_mb=0.2)
    with running.client() as client, ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: client.post("/v1/inpaint", files=files).status_code, range(16)))
        assert replies == [200] * 16
        wait_until(lambda: "retouch_decoded_bytes 0.0" in client.get("/metrics").text)


def reply(*files: bytes) -> Reply:
    pictures = tuple(Encoded(file, f"{index:032x}") for index, file in enumerate(files))
    return Reply(pictures, "image/png", Size(2, 3), "photos/1", "fake/fp32", 1, 0.5, 7, Timings())


async def runs_meanwhile(work: Callable[[], Coroutine[Any, Any, object]]) -> bool:
    """Whether the event loop could run other tasks while `work` ran."""
    turns = itertools.count()

    async def take_turns() -> None:
        while True:
            next(turns)
            await asyncio.sleep(0)

    turning = asyncio.ensure_future(take_turns())
    await work()
    turning.cancel()
    return next(turns) > 0


@pytest.mark.parametrize(("files", "accept"), [(1, "application/json"), (2, "*/*"), (2, "multipart/mixed")])
async def test_large_pictures_are_packed_while_the_event_loop_runs(files: int, accept: str) -> None:
    assert await runs_meanwhile(lambda: image_response(reply(*[LARGE] * files), "id", accept))
    assert not await runs_meanwhile(lambda: image_response(reply(*[b"small"] * files), "id", accept))


async def test_json_replies_have_the_documented_form() -> None:
    one = await image_response(reply(b"a"), "id", "application/json")
    assert ImageReply(**json.loads(one.body)).model_dump() == json.loads(one.body)
    several = await image_response(reply(b"a", b"b"), "id", "*/*")
    assert ImagesReply(**json.loads(several.body)).model_dump() == json.loads(several.body)
