"""Cursors: their content, and the list that each belongs to."""

from __future__ import annotations

import base64
import json

import pytest

from service.core.errors import InvalidOption
from service.gallery.cursor import Position, decode, encode

HERE = Position(1795417200.25, "a" * 32)


def test_a_cursor_leads_back_to_its_position() -> None:
    assert decode(encode(HERE, ["owner", None]), ["owner", None]) == HERE


def test_a_cursor_of_another_list_is_refused() -> None:
    for other in (["other", None], ["owner", "photos"], []):
        with pytest.raises(InvalidOption) as refused:
            decode(encode(HERE, ["owner", None]), other)
        assert refused.value.code == "cursor_invalid"


def sealed(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "cursor",
    [
        *("", "?", "é", "AAAA", "bnVsbA", "x" * 256, sealed([]), sealed([1, 2, 3]), sealed({"a": 1})),
        sealed([1e999, "a" * 32, "0" * 16]),
        sealed([1, "../../etc/passwd", "0" * 16]),
        sealed([[], "a" * 32, "0" * 16]),
        sealed([10**400, "a" * 32, "0" * 16]),
        base64.urlsafe_b64encode(b"[" * 180).decode(),
    ],
)
def test_malformed_cursors_are_refused(cursor: str) -> None:
    with pytest.raises(InvalidOption):
        decode(cursor, ["owner"])
