"""The memory that is counted for the fields of a JSON body bounds what decoding them takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from service.compat.json_fields import JsonFields, parse_fields
from service.compat.json_memory import MAX_TEXT_BYTES, decoded_bytes
from service.compat.json_strings import MAX_VALUES
from service.core.errors import ServiceError

LONG = b"A" * 2_000_000
WIDER, WIDEST = "é€".encode(), "😀".encode()
MANY = range(MAX_VALUES)
BLOCKS = 3 * 65_536
"""A block of base64 is copied, decoded and searched at a time, whatever the body's size."""
SMALL_OBJECTS = 20_000


def _texts(fields: JsonFields) -> None:
    for name in fields:
        fields.value(name, str, "")


BODIES: dict[str, tuple[bytes, Callable[[JsonFields], object]]] = {
    "a file": (b'{"a": "%s"}' % LONG, lambda fields: fields.picture("a")),
    "a file with escapes": (b'{"a": "%s"}' % LONG.replace(b"AAAA", b"AA\\/A"), lambda fields: fields.picture("a")),
    "a file in escapes": (b'{"a": "%s"}' % (b"\\u0041" * 400_000), lambda fields: fields.picture("a")),
    "a file with an emoji": (b'{"a": "%s%s"}' % (LONG, WIDEST), lambda fields: fields.picture("a")),
    "a file with an escaped emoji": (
        b'{"a": "%s\\ud83d\\ude00"}' % LONG,
        lambda fields: fields.picture("a"),
    ),
    "a long text": (b'{"a": "%s%s"}' % (LONG, WIDEST), _texts),
    "a long name": (b'{"%s": 1}' % LONG, dict),
    "a long name with wide characters": (b'{"%s%s%s": 1}' % (WIDER, LONG, WIDEST), dict),
    "a long name that is widened twice": (b'{"%s%s\\ud83d\\ude00" : 1}' % (WIDER, LONG), dict),
    "a name with quotes": (b'{"%s%s\\"%s": 1}' % (WIDER, LONG, WIDEST), dict),
    "many short texts": (
        b"{%s}" % b",".join(b'"%d":"%s%s%s"' % (n, WIDER, b"A" * 4000, WIDEST) for n in range(400)),
        lambda fields: [fields.value(name, str, "") for name in fields],
    ),
    "many fields": (b"{%s}" % b",".join(b'"%d":0' % n for n in MANY), dict),
    "many objects": (b'{"a": [%s]}' % b",".join(b"{}" for _ in MANY), lambda fields: fields.objects("a")),
    "many quotes": (b'{"%s%s": "%s"}' % (LONG, WIDEST, b'\\"' * 20_000), dict),
    "a text that is cut within a character": (b'{"a": "%s", "b": "\\ud83d"}' % (b"\\u20ac" * 400_000), dict),
    "a long text that is cut within a character": (b'{"b": "%s\\ud83d"}' % (b"\\ud83d\\ude00" * 200_000), dict),
}


@pytest.mark.parametrize(("body", "read"), BODIES.values(), ids=BODIES)
def test_reading_the_fields_takes_at_most_what_is_counted(body: bytes, read: Callable[[JsonFields], object]) -> None:
    tracemalloc.start()
    counted = decoded_bytes(body)
    try:
        kept = read(parse_fields(body))
    except ServiceError:
        kept = None
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    del kept
    assert peak < counted + BLOCKS + SMALL_OBJECTS


def test_text_beside_a_file_does_not_change_what_is_counted_for_the_file() -> None:
    alone = decoded_bytes(b'{"a": "%s"}' % LONG)
    assert alone < len(LONG)
    beside = decoded_bytes(b'{"a": "%s", "prompt": "\\n \\" %s"}' % (LONG, WIDEST))
    assert beside < alone + 1_000


def test_short_values_count_as_texts_and_long_ones_as_files() -> None:
    short, long = (decoded_bytes(b'{"a": "%s%s"}' % (WIDEST, b"A" * (MAX_TEXT_BYTES + n - 4))) for n in (0, 1))
    assert long < MAX_TEXT_BYTES + 1_000 < 8 * MAX_TEXT_BYTES < short
