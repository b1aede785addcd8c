from __future__ import annotations

import base64
import json
import math
from email.parser import BytesParser
from email.policy import HTTP
from io import BytesIO

import pytest
from typing_extensions import Buffer

from service.core.call import Timings
from service.core.pictures import Size
from service.core.reply import Encoded, Reply
from service.intake.written_bodies import json_body, multipart_body, write_json, write_multipart

MOST_BYTES = 2**19
FILE = bytes(range(256)) * 4096


class Writes(BytesIO):
    """Records the size of each write."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def write(self, piece: Buffer) -> int:
        self.sizes.append(memoryview(piece).nbytes)
        return super().write(piece)


def test_files_are_base64_in_json_wherever_they_are() -> None:
    content = {"first": b"ab", "list": [{"file": b""}, {"file": FILE, "text": 'a "quoted" ä'}], "none": None}
    read = json.loads(json_body(content))
    assert [base64.b64decode(read["first"]), base64.b64decode(read["list"][1]["file"])] == [b"ab", FILE]
    assert (read["list"][0]["file"], read["list"][1]["text"], read["none"]) == ("", 'a "quoted" ä', None)


@pytest.mark.parametrize("text", ["\0", '{"\0":0}', '{"\\u0000":0}', '\\"\0'])
def test_a_text_is_never_taken_for_a_file(text: str) -> None:
    assert json.loads(json_body({text: text, "file": b"abc"})) == {text: text, "file": "YWJj"}


def test_a_value_without_a_form_in_json_is_an_error() -> None:
    with pytest.raises(TypeError, match="set has no form"):
        json_body({"set": set()})
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_body({"number": math.nan})


def test_a_large_file_is_written_in_pieces_so_that_other_threads_run_between_them() -> None:
    out = Writes()
    write_json(out, {"file": FILE})
    assert max(out.sizes) <= MOST_BYTES < len(FILE)


def reply(*pictures: Encoded) -> Reply:
    return Reply(pictures, "image/png", Size(1, 1), "photos/1", "fake/fp32", 1, None, None, Timings())


def test_a_large_picture_of_a_multipart_body_is_written_in_pieces_too() -> None:
    out = Writes()
    write_multipart(out, reply(Encoded(FILE, None)))
    assert max(out.sizes) <= MOST_BYTES < len(FILE)


def test_the_parts_of_a_multipart_body_are_the_files() -> None:
    pictures = (Encoded(FILE, "1" * 32), Encoded(b"--boundary\r\n", None))
    boundary, body = multipart_body(reply(*pictures))
    head = f'Content-Type: multipart/mixed; boundary="{boundary}"\r\n\r\n'.encode()
    parts = list(BytesParser(policy=HTTP).parsebytes(head + body).iter_parts())
    assert [part["Location"] for part in parts] == [f"/v1/results/{'1' * 32}", None]
    assert [part["Content-Length"] for part in parts] == [str(len(FILE)), "12"]
    assert all(picture.body in body for picture in pictures)


def test_a_file_that_contains_the_boundary_of_another_body_gets_another_boundary() -> None:
    boundary, _ = multipart_body(reply(Encoded(b"first", None), Encoded(b"second", None)))
    hostile = Encoded(f"\r\n--{boundary}--\r\n".encode(), None)
    other, body = multipart_body(reply(Encoded(b"first", None), hostile))
    assert other != boundary
    assert body.count(other.encode()) == 3, "before each part, and at the end"
