"""Finds the strings of a JSON text without copies, at the speed at which `bytes.find` passes over a file in base64."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
MAX_VALUES = 10_000
"""Largest number of fields and values, as each costs far more memory than its text."""
MAX_QUOTES = 5_000
"""Number of quotation marks up to which strings are looked for, as each takes a step in Python."""
_AFTER_NAME = re.compile(rb"[ \t\r\n]*:")
_LONG_BYTES = 1 << 17
"""Length from which `bytes.find` for each of few characters is faster than `bytes.count`, up to 20 times."""
_BLOCK_BYTES = 1 << 6
"""Bytes that are copied at a time to count backslashes."""


class JsonString(NamedTuple):
    """A string between its quotation marks, and whether it is the name of a field; an unfinished one ends the text."""

    start: int
    end: int
    is_name: bool


def number_of(character: bytes, text: bytes | bytearray, most: int) -> int:
    """Return how often a character occurs, or `most` if that is less."""
    if len(text) < _LONG_BYTES:
        return min(text.count(character), most)
    found, at = 0, text.find(character)
    while at >= 0 and found < most:
        found, at = found + 1, text.find(character, at + 1)
    return found


def has_few_strings(text: bytes | bytearray) -> bool:
    """Return whether the strings of a text are few enough to look for them."""
    return number_of(b'"', text, MAX_QUOTES + 1) <= MAX_QUOTES


def strings_in(text: bytes | bytearray) -> Iterator[JsonString]:
    """Yield the strings of a JSON text; after a place at which it is malformed, anything may follow."""
    start = text.find(b'"') + 1
    while start:
        end = text.find(b'"', start)
        while end >= 0 and _is_escaped(text, start, end):
            end = text.find(b'"', end + 1)
        if end < 0:
            yield JsonString(start, len(text), is_name=False)
            return
        yield JsonString(start, end, is_name=_AFTER_NAME.match(text, end + 1) is not None)
        start = text.find(b'"', end + 1) + 1


def _is_escaped(text: bytes | bytearray, start: int, at: int) -> bool:
    """Return whether an odd number of backslashes precedes a place in the string that begins at `start`."""
    backslashes = 0
    while at > start:
        block = text[max(start, at - _BLOCK_BYTES) : at]
        run = len(block) - len(block.rstrip(b"\\"))
        backslashes += run
        at -= len(block)
        if run < len(block):
            break
    return backslashes % 2 == 1
