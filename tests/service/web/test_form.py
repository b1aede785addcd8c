"""Bodies: multipart only, within limits, each part known and sent once."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from service.core.errors import InvalidRequest
from service.web.multipart import PartsReader
from tests.serving.local_server import Running

Serve = Callable[..., Any]
BOUNDARY = b"frontier"
HEADERS = {"Content-Type": "multipart/form-data; boundary=frontier"}


def part(disposition: bytes, body: bytes) -> bytes:
    return b"--frontier\r\nContent-Disposition: form-data; " + disposition + b"\r\n\r\n" + body + b"\r\n"


END = b"--frontier--\r\n"
IMAGE = b'name="image"; filename="a.png"'
MASK = b'name="mask"; filename="m.png"'


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        pytest.param(END, 400, "missing_part", id="no parts"),
        pytest.param(part(IMAGE, b"x") + END, 400, "missing_part", id="no mask"),
        pytest.param(part(IMAGE, b"") + part(MASK, b"x") + END, 400, "empty_part", id="an empty file"),
        pytest.param(part(IMAGE, b"x") * 2 + END, 400, "repeated_part", id="a file twice"),
        pytest.param(part(b'name="image"', b"x") + END, 400, "missing_part", id="a file as a text field"),
        pytest.param(part(b'name="extra"; filename="e"', b"x") + END, 400, "invalid_request", id="an unknown file"),
        pytest.param(part(b'name="quality"', b"9" * 5000) + END, 400, "invalid_request", id="an endless field"),
        pytest.param(part(b"nothing", b"x") + END, 400, "invalid_request", id="a part without a name"),
        pytest.param(
            b"".join(part(b'name="f%d"' % i, b"x") for i in range(40)) + END, 400, "invalid_request", id="40 fields"
        ),
        pytest.param(b"garbage", 400, "invalid_request", id="no multipart at all"),
        pytest.param(
            b"hello\r\n" + part(IMAGE, b"x") + END, 400, "invalid_request", id="text before the first boundary"
        ),
        pytest.param(part(b'filename="a.png"', b"x") + END, 400, "invalid_request", id="a file without a name"),
        pytest.param(
            part(IMAGE, b"x") + part(MASK, b"x") + part(b'name="nope"', b"1") + END,
            422,
            "invalid_option",
            id="an unknown field",
        ),
        pytest.param(
            part(IMAGE, b"x") + part(MASK, b"x") + part(b'name="quality"', b"0") + END,
            422,
            "invalid_option",
            id="out of range",
        ),
        pytest.param(
            part(b'name="image"; filename="../../etc/passwd"', b"x") + part(MASK, b"x") + END,
            415,
            "unsupported_type",
            id="a hostile file name",
        ),
    ],
)
def test_a_body_that_is_not_what_the_call_takes_is_refused(
    server: Running, body: bytes, status: int, code: str
) -> None:
    with server.client() as client:
        response = client.post("/v1/inpaint", content=body, headers=HEADERS)
    assert (response.status_code, response.json()["code"]) == (status, code), response.text


@pytest.mark.parametrize("content_type", ["application/json", "multipart/form-data", "", "text/plain; boundary=x"])
def test_only_multipart_with_a_boundary_is_read(server: Running, content_type: str) -> None:
    with server.client() as client:
        response = client.post("/v1/inpaint", content=b"x", headers={"Content-Type": content_type})
    assert response.status_code in (400, 415)
    assert response.json()["code"] in ("invalid_request", "unsupported_type")


@pytest.mark.parametrize("boundary", ["----=_Part_1", "===1==", "a/b:c?d(e),f", '"a;b"', 'x; charset="; boundary=y"'])
def test_a_boundary_is_read_whole_also_without_the_quotes_that_it_needs(boundary: str) -> None:
    reader, line = PartsReader(f"multipart/form-data; boundary={boundary}"), boundary.partition(" ")[0].strip('";')
    reader.feed(f'--{line}\r\nContent-Disposition: form-data; name="seed"\r\n\r\n7\r\n--{line}--\r\n'.encode())
    assert [(part.name, part.text) for part in reader.finish()] == [("seed", "7")]


def test_an_announced_body_that_is_too_large_is_refused_before_it_is_read(serve: Serve) -> None:
    with serve(max_body_mb=0.01).client() as client:
        response = client.post("/v1/inpaint", content=b"x" * 20_000, headers=HEADERS)
    found = response.status_code, response.json()["code"], "larger than 10 KiB; send less" in response.text
    assert found == (413, "too_many_bytes", True)


def test_an_unannounced_body_is_refused_when_it_has_grown_too_large(serve: Serve) -> None:
    def chunks() -> Iterator[bytes]:
        yield part(IMAGE, b"x")
        yield from [b"y" * 1000] * 20

    with serve(max_body_mb=0.01).client() as client:
        response = client.post("/v1/inpaint", content=chunks(), headers=HEADERS)
    assert (response.status_code, response.json()["code"]) == (413, "too_many_bytes")


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/v1/inpaint?format=jpeg&quality=40", "`format`, `quality`"),
        ("/v1/translate?model=facades%2F1", "`model`"),
        ("/v1/generate?count=4", "`count`"),
        ("/v1/inpaint?webp", "`webp`"),
        ("/v1/inpaint?&", "a query"),
        (f"/v1/inpaint?{'n' * 200}=1", f"`{'n' * 80}`"),
    ],
)
def test_options_in_the_address_are_refused_and_not_passed_over(
    server: Running, files: dict[str, Any], path: str, named: str
) -> None:
    with server.client() as client:
        response = client.post(path, files=files)
        assert client.post("/v1/inpaint?", files=files).status_code == 200
    assert (response.status_code, response.json()["code"]) == (422, "invalid_option")
    assert response.json()["detail"].startswith(f"{named} in the URL: options are form fields")


def test_the_values_of_a_query_are_not_repeated(server: Running, files: dict[str, Any]) -> None:
    with server.client() as client:
        response = client.post("/v1/inpaint?api_key=rtk_secret", files=files)
    assert response.status_code == 422
    assert "rtk_secret" not in response.text


def test_a_misspelt_field_gets_a_suggestion(server: Running, files: dict[str, Any]) -> None:
    with server.client() as client:
        detail = client.post("/v1/inpaint", files=files, data={"formt": "jpeg"}).json()["detail"]
    assert detail.startswith("unknown field formt; did you mean format? (fields are ")


def test_the_message_names_the_field_and_the_known_ones(server: Running, files: dict[str, Any]) -> None:
    with server.client() as client:
        detail = client.post("/v1/inpaint", files=files, data={"mask_mod": "white"}).json()["detail"]
    assert "mask_mod" in detail
    assert "mask_mode" in detail


def test_an_empty_field_counts_as_not_sent(server: Running, photo: bytes, mask: bytes) -> None:
    """Swagger's page and browsers' forms send empty fields, and empty files where none was chosen."""
    files = part(IMAGE, photo) + part(MASK, mask)
    names = ("model", "format", "quality", "save", "webhook", "webhook_events", "mask_mode", "mask_resize", "seed")
    fields = b"".join(part(b'name="%s"' % name.encode(), b"") for name in (*names, "strategy", "samples"))
    with server.client() as client:
        answer = client.post("/v1/inpaint", content=files + fields + END, headers=HEADERS)
        assert answer.status_code == 200, answer.text
        assert answer.headers["Content-Type"] == "image/png"
        unknown = client.post("/v1/inpaint", content=files + part(b'name="nope"', b"") + END, headers=HEADERS)
        assert (unknown.status_code, unknown.json()["code"]) == (422, "invalid_option")
        absent = part(b'name="instance"', b"") + part(b'name="reference"', b"")
        translated = client.post("/v1/translate", content=part(IMAGE, photo) + absent + END, headers=HEADERS)
        assert translated.status_code == 200, translated.text
        missing = client.post("/v1/translate", content=part(b'name="image"', b"") + END, headers=HEADERS)
        assert (missing.status_code, missing.json()["code"]) == (400, "missing_part")


def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_nothing_behind(serve: Serve) -> None:
    def broken() -> Iterator[bytes]:
        yield part(IMAGE, b"x")
        raise RuntimeError("the cable is out")

    running = serve()
    with running.client() as client, pytest.raises(RuntimeError):
        client.post("/v1/inpaint", content=broken(), headers=HEADERS)
    with running.client() as client:
        text = ""
        for _ in range(200):
            text = client.get("/metrics").text
            if "retouch_cancelled_total 1.0" in text:
                break
        assert "retouch_cancelled_total 1.0" in text
        assert "retouch_requests_in_flight 0.0" in text


def test_a_text_field_may_hold_any_text(server: Running, files: dict[str, Any]) -> None:
    with server.client() as client:
        response: httpx.Response = client.post("/v1/inpaint", files=files, data={"model": "фото\u0000"})
    assert response.status_code == 422
    assert json.loads(response.text)["code"] == "invalid_option"


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_parts_are_the_same_in_whatever_pieces_they_come_and_those_are_joined_only_once(size: int) -> None:
    content = b"\xff\r\n--front" * 400
    body = b"\r\n" + part(IMAGE, content) + part(b'name="quality"', b"9") + END + b"\r\nepilogue"
    reader = PartsReader(HEADERS["Content-Type"])
    for start in range(0, len(body), size):
        reader.feed(body[start : start + size])
    parts = reader.finish()
    assert max(len(piece) for piece in parts[0].slices) <= size + len(END), "else large files would take quadratic time"
    assert [(p.name, p.is_file, p.data) for p in parts] == [("image", True, content), ("quality", False, b"9")]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(part(IMAGE, b"\r\n--front") + part(b'name="quality"', b"9") + END, id="as clients send it"),
        pytest.param((part(IMAGE, b"x") + END)[:-2], id="without a last line break"),
        pytest.param(part(IMAGE, b"") + END, id="an empty part"),
        pytest.param(part(IMAGE, b"\r\n\r\n\r\n") + END, id="line breaks alone"),
        pytest.param(part(IMAGE + b"\r\nContent-Type: image/png\r\nX-Other: 1", b"x") + END, id="more header fields"),
        pytest.param(part(IMAGE + b"\r\nContent-Length: 1", b"x") + END, id="a length"),
        pytest.param(part(IMAGE + b"\r\ncontent-length: 2", b"x") + END, id="a wrong length"),
        pytest.param(part(IMAGE + b"\r\n\tcontinued", b"x") + END, id="a continued line"),
        pytest.param(part(IMAGE + b"\r\nX" * 20, b"x") + END, id="fields without a colon"),
        pytest.param(part(IMAGE, b"x") + b"--frontier\r\n\r\n\r\nx\r\n" + END, id="a part without a header"),
        pytest.param(part(IMAGE, b"x") + b"--frontier\r\nContent-Disposition: form-data\r\n" + END, id="no blank line"),
        pytest.param(part(IMAGE, b"x\r\n--frontiers\r\n") + END, id="a longer boundary"),
        pytest.param(part(IMAGE, b"x") + END + part(MASK, b"x") + END, id="parts behind the end"),
        pytest.param(part(IMAGE, b"x") + part(MASK, b"x\r\n--frontier--"), id="an end too early"),
        pytest.param(part(b'name="a"', b"x" * 5000) + part(b"nothing", b"x") + END, id="two faults"),
    ],
)
def test_a_body_in_one_piece_is_read_as_it_is_byte_by_byte(body: bytes) -> None:
    def outcome(size: int) -> list[tuple[str, bool, str, bytes]] | str:
        reader = PartsReader(HEADERS["Content-Type"])
        try:
            for start in range(0, len(body), size):
                reader.feed(body[start : start + size])
            return [(p.name, p.is_file, p.file_name, p.data) for p in reader.finish()]
        except InvalidRequest as error:
            return str(error)

    assert outcome(len(body)) == outcome(1)


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"name=\"image\"; filename*=UTF-8''F%C3%B6n.png", id="a name in the form of RFC 5987 alone"),
        pytest.param(b"name=\"image\";FileName* = utf-8'en'a.png; size=1", id="that form, otherwise written"),
        pytest.param(b'name="image"\r\nContent-Type: image/png', id="no name, but the type of a picture"),
    ],
)
def test_what_clients_send_as_a_file_is_one(head: bytes) -> None:
    body = part(head, b"x" * 5000) + END
    for size in (len(body), 1):
        reader = PartsReader(HEADERS["Content-Type"])
        for start in range(0, len(body), size):
            reader.feed(body[start : start + size])
        assert [(p.name, p.is_file, p.size) for p in reader.finish()] == [("image", True, 5000)]


@pytest.mark.parametrize(
    "name", [b'"x;filename*=y"', b'"x\\"; filename*=y"', b'"x"; note="; filename*=y"', b"filename*=y"]
)
def test_a_field_is_no_file_because_a_quoted_text_has_the_word(name: bytes) -> None:
    reader = PartsReader(HEADERS["Content-Type"])
    reader.feed(part(b"name=" + name, b"text") + END)
    assert [(p.is_file, p.text) for p in reader.finish()] == [(False, "text")]


def test_a_large_field_is_refused_with_what_makes_it_a_file() -> None:
    with pytest.raises(InvalidRequest, match="a file needs a `filename`"):
        PartsReader(HEADERS["Content-Type"]).feed(part(b'name="image"', b"x" * 5000))


@pytest.mark.parametrize(
    ("charset", "name"), [("", "gr\u00f6\u00dfe"), ("; charset=latin-1", "gr\u00c3\u00b6\u00c3\u009fe")]
)
def test_names_are_read_in_the_charset_of_the_body(charset: str, name: str) -> None:
    reader = PartsReader(HEADERS["Content-Type"] + charset)
    reader.feed(part('name="gr\u00f6\u00dfe"'.encode(), b"1") + END)
    assert [p.name for p in reader.finish()] == [name]


def test_a_compressed_body_is_415_and_says_what_to_do(
    server: Running, files: dict[str, tuple[str, bytes, str]]
) -> None:
    with server.client() as client:
        refused = client.post("/v1/inpaint", files=files, headers={"Content-Encoding": "gzip"})
        assert (refused.status_code, refused.json()["code"]) == (415, "unsupported_encoding")
        assert "without Content-Encoding" in refused.json()["detail"]
        assert client.post("/v1/inpaint", files=files, headers={"Content-Encoding": "identity"}).status_code == 200


def test_a_client_of_http_1_0_gets_no_leave_to_send_its_body_which_it_would_read_as_the_reply(server: Running) -> None:
    head = f"POST /v1/inpaint HTTP/1.0\r\nExpect: 100-continue\r\nContent-Type: {HEADERS['Content-Type']}\r\n"
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as connection:
        connection.sendall(head.encode() + b"Host: localhost\r\nContent-Length: %d\r\n\r\n" % len(END))
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.sendall(END)
        connection.settimeout(10)
        assert connection.recv(12) == b"HTTP/1.1 400"
