"""Counts the memory that the fields of a JSON body take once they are decoded, before anything is decoded. Pure."""

from __future__ import annotations

from service.compat.json_strings import MAX_VALUES, JsonString, has_few_strings, number_of, strings_in

MAX_TEXT_BYTES = 4096
"""Longest JSON of a value that is read as text or a number, in bytes; a longer one is never read, or is a file."""
_TEXT_BYTES = 8
"""Most bytes for each byte of a text: its unescaped copy, with half as much to spare, and strings of two and of four
bytes a character, of which one replaces the other at the first character that needs it."""
_VALUE_BYTES = 320
"""Memory of a value or name beside its text: an object, which takes 300 bytes in CPython 3.10, and its list entry."""
_FEW_VALUES = 100
"""Number of values that take no more than the other objects of a request, which are not counted either."""


def decoded_bytes(body: bytes | bytearray) -> int:
    """Return the most memory that the fields of a JSON body take once they are decoded, in bytes.

    Names of fields and short values count as texts in any language, longer values as files in base64.
    """
    number = sum(number_of(character, body, MAX_VALUES) for character in (b":", b","))
    values = _VALUE_BYTES * max(0, number - _FEW_VALUES)
    if not has_few_strings(body):
        return values + _TEXT_BYTES * len(body)
    return values + sum(_memory_of(body, string) for string in strings_in(body))


def _memory_of(body: bytes | bytearray, string: JsonString) -> int:
    start, end, is_name = string
    nbytes, escaped = end - start, body.find(b"\\", start, end) >= 0
    if is_name or nbytes <= MAX_TEXT_BYTES:
        return nbytes if not escaped and body[start:end].isascii() else _TEXT_BYTES * nbytes
    return nbytes * 3 // 4 + (2 * nbytes if escaped else 0)  # an unescaped text, which is copied once more
