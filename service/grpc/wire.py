"""The outer parts of an inference request in protobuf's wire format, before protobuf reads it. Pure.

Protobuf would copy the pictures twice, and turn a message of many tiny parts into objects of fifty times its size. So
the pictures are cut out as views, and the rest, the head, is checked against limits before it is parsed.
Format: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from service.core.errors import InvalidRequest, TooLarge

MAX_FIELDS = 1_000
"""Largest number of fields on the levels that this module reads."""
MAX_HEAD_BYTES = 1 << 16
"""Largest size of a request without its pictures."""
_INPUTS, _RAW_INPUT_CONTENTS = 5, 7
_CONTENTS, _BYTES_CONTENTS = 5, 8
_LENGTH_DELIMITED = 2
_FIXED_BYTES = {1: 8, 5: 4}
_MAX_VARINT_BYTES = 10


@dataclass(slots=True)
class InferParts:
    """An inference request without its pictures, and its pictures.

    head: the request in protobuf's wire format, without `raw_input_contents` and without `contents` of inputs.
    raw: `raw_input_contents`, in their order.
    files: the `bytes_contents` of each input.
    numbers: the inputs, by index, with typed contents other than `bytes_contents`.
    """

    head: bytearray = field(default_factory=bytearray)
    raw: list[memoryview] = field(default_factory=list)
    files: list[list[memoryview]] = field(default_factory=list)
    numbers: set[int] = field(default_factory=set)


class _Field(NamedTuple):
    """A field of a message: its number, all of its bytes, and its value if that is length-delimited."""

    number: int
    whole: memoryview
    value: memoryview | None


def split_request(message: bytes) -> InferParts:
    """Split an inference request.

    Raises:
        InvalidRequest: the message is not in protobuf's wire format.
        TooLarge: the message has too many fields, or is too large without its pictures.
    """
    parts, counted = InferParts(), _Counter()
    for one in _fields(memoryview(message), counted):
        if one.number == _RAW_INPUT_CONTENTS and one.value is not None:
            parts.raw.append(one.value)
        elif one.number == _INPUTS and one.value is not None:
            rest = _input_without_contents(one.value, parts, counted)
            parts.head += length_delimited(_INPUTS, len(rest)) + rest
        else:
            parts.head += one.whole
        if len(parts.head) > MAX_HEAD_BYTES:
            raise _too_large_error()
    return parts


def length_delimited(number: int, size: int) -> bytes:
    """Return the key and length of a length-delimited field, whose value of `size` bytes follows."""
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(size)


def _input_without_contents(data: memoryview, parts: InferParts, counted: _Counter) -> bytearray:
    rest, files = bytearray(), list[memoryview]()
    for one in _fields(data, counted):
        if one.number == _CONTENTS and one.value is not None:
            for content in _fields(one.value, counted):
                if content.number == _BYTES_CONTENTS and content.value is not None:
                    files.append(content.value)
                else:
                    parts.numbers.add(len(parts.files))
        else:
            if len(rest) + len(one.whole) > MAX_HEAD_BYTES:
                raise _too_large_error()
            rest += one.whole
    parts.files.append(files)
    return rest


class _Counter:
    """Counts fields over all levels."""

    def __init__(self) -> None:
        self._left = MAX_FIELDS

    def count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooLarge(f"the message has more than {MAX_FIELDS} fields; send a picture as one element of BYTES")


def _fields(data: memoryview, counted: _Counter) -> Iterator[_Field]:
    at = 0
    while at < len(data):
        counted.count()
        key, value_at = _read_varint(data, at)
        kind, value = key & 7, None
        if kind == 0:
            _, end = _read_varint(data, value_at)
        elif kind == _LENGTH_DELIMITED:
            size, value_at = _read_varint(data, value_at)
            end = value_at + size
            value = data[value_at:end]
        elif kind in _FIXED_BYTES:
            end = value_at + _FIXED_BYTES[kind]
        else:
            raise _malformed_error()
        if end > len(data) or key >> 3 == 0:
            raise _malformed_error()
        yield _Field(key >> 3, data[at:end], value)
        at = end


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number that begins at an index, and the index after it."""
    value = 0
    for index, byte in enumerate(data[at : at + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, at + index + 1
    raise _malformed_error()


def _varint(value: int) -> bytes:
    written = bytearray()
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def _malformed_error() -> InvalidRequest:
    return InvalidRequest("the message is not a protobuf message")


def _too_large_error() -> TooLarge:
    return TooLarge(f"the message has over {MAX_HEAD_BYTES // 1024} KiB beside its pictures; send fewer parameters")
