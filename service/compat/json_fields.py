"""Reads a JSON object with pictures in base64, without a copy of their text.

The fields stay views into the body until they are read, and a picture is decoded from its view. The memory of the
body and of all that can be decoded from it is counted before anything is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeVar

import msgspec

from service.compat.base64_text import blocks_of, decode_base64, strange_character
from service.compat.json_memory import MAX_TEXT_BYTES, decoded_bytes
from service.compat.json_strings import BYTE_ORDER_MARK, MAX_VALUES, number_of
from service.compat.json_surrogates import place_of_lone_surrogate
from service.core.errors import InvalidOption, InvalidRequest
from service.intake.large_bodies import off_loop
from service.web.form import check_encoding
from service.web.intake import HttpIntake
from service.web.request_headers import check_json

T = TypeVar("T")
JSON_TYPE = "application/json"
_STRANGE_ESCAPE = re.compile(rb"\\(?:[^/nrtfu]|u(?:[dD][89abAB]..\\u|(?!00[0-7])).{4})", re.DOTALL)
"""An escape of a character that no file in base64 has, nor the beginning of a data URL."""
_ASCII = bytes(range(128))


class JsonFields(Mapping[str, msgspec.Raw]):
    """The fields of a JSON object; null counts as absent."""

    def __init__(self, raws: Mapping[str, msgspec.Raw]) -> None:
        self._raws = {name: raw for name, raw in raws.items() if bytes(memoryview(raw)[:5]) != b"null"}

    def __getitem__(self, name: str) -> msgspec.Raw:
        return self._raws[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._raws)

    def __len__(self) -> int:
        return len(self._raws)

    def value(self, name: str, kind: type[T], default: T) -> T:
        """Return a short field converted to `kind`; numbers and booleans may be strings.

        Raises:
            InvalidOption: the field cannot be converted to `kind`, or is longer than `MAX_TEXT_BYTES`.
        """
        if name in self._raws and (nbytes := len(memoryview(self._raws[name]))) > MAX_TEXT_BYTES:
            raise InvalidOption(f"`{name[:80]}` has {nbytes:,} bytes; send at most {MAX_TEXT_BYTES:,}", field=name)
        return self._converted(name, kind, default)

    def nested(self, name: str) -> JsonFields:
        """Return the fields of an object in a field; none if it is absent."""
        return JsonFields(self._converted(name, dict[str, msgspec.Raw], {}))

    def listed(self, name: str) -> list[msgspec.Raw]:
        """Return the items of a list in a field; none if it is absent."""
        return self._converted(name, list[msgspec.Raw], [])

    def objects(self, name: str) -> list[JsonFields]:
        """Return the objects of a list in a field; none if it is absent."""
        return [JsonFields(one) for one in self._converted(name, list[dict[str, msgspec.Raw]], [])]

    def scalar(self, name: str) -> str:
        """Return a string, number or boolean as the text of a form field; empty if it is absent."""
        value: object = self.value(name, str | int | float | bool, "")  # type: ignore[arg-type]
        return str(value).lower() if isinstance(value, bool) else str(value)

    def picture(self, name: str, shown: str = "") -> bytes:
        """Return the file in a field, decoded from base64 or from a data URL; `shown` is its name for messages.

        Raises:
            InvalidRequest: the field is missing, empty or not base64; or it is a URL, which is never fetched.
        """
        shown = shown or name
        if name not in self._raws:
            raise InvalidRequest(f"`{shown}` is missing; send the file in base64", code="missing_part", field=shown)
        return self.file(self._raws[name], shown)

    def file(self, raw: msgspec.Raw, name: str) -> bytes:
        """Return the file in a raw JSON value as `picture` does; `name` is the field's, for messages."""
        text = memoryview(raw)
        if bytes(text[:1]) != b'"':
            raise InvalidRequest(f"`{name}` is not a string; send the file in base64", field=name)
        text = _unescaped(raw, name) if any(b"\\" in block for block in blocks_of(text)) else text[1:-1]
        data = decode_base64(text, name)
        if not data:
            raise InvalidRequest(f"`{name}` is empty", code="empty_part", field=name)
        return data

    def _converted(self, name: str, kind: type[T], default: T) -> T:
        return default if name not in self._raws else _converted(self._raws[name], kind, name)


async def read_json(intake: HttpIntake) -> JsonFields:
    """Read a request's body as a JSON object.

    Raises:
        UnsupportedType: the body is not declared as JSON, or it is compressed.
        InvalidRequest: as `parse_fields`.
        TooLarge, Overloaded, Cancelled: as `HttpIntake.stream`.
    """
    check_encoding(intake.request)
    check_json(intake.request.headers)
    body = bytearray()
    async for chunk in intake.stream():
        body += chunk
    await count_decoded(intake, body)
    return await off_loop(len(body), lambda: parse_fields(body))


async def count_decoded(intake: HttpIntake, body: bytes | bytearray) -> None:
    """Count the memory of the fields of a JSON body before they are decoded.

    Raises:
        Overloaded: as `HttpIntake.count_bytes`.
    """
    intake.count_bytes(await off_loop(len(body), lambda: decoded_bytes(body)))


def parse_fields(body: bytes | bytearray, advice: str = "send pictures as files in base64") -> JsonFields:
    """Parse a JSON object; its fields are views into `body`. A byte order mark is ignored (RFC 8259 §8.1).

    Args:
        body: the text.
        advice: what to send in place of pixels.

    Raises:
        InvalidRequest: the body is malformed, nested too deeply, not an object, or has more than `MAX_VALUES` values.
    """
    if any(number_of(character, body, MAX_VALUES + 1) > MAX_VALUES for character in (b":", b",")):
        raise InvalidRequest(f"the JSON has more than {MAX_VALUES:,} values; {advice}")
    try:
        text = memoryview(body)[len(BYTE_ORDER_MARK) :] if body.startswith(BYTE_ORDER_MARK) else body
        raws = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (ValueError, RecursionError) as error:
        if (place := place_of_lone_surrogate(body)) is not None:
            cut = f"{place} has half of a surrogate pair, as of an emoji that was cut in two; send whole characters"
            raise InvalidRequest(cut, field=place.strip("`") if place.startswith("`") else "") from error
        why = str(error).removeprefix("JSON is malformed: ")[:200] if body else "it is empty"
        raise InvalidRequest(f"the body is not a JSON object: {why}; send one, in UTF-8") from error
    return JsonFields(raws)


def _converted(raw: msgspec.Raw, kind: type[T], name: str) -> T:
    try:
        return msgspec.json.decode(raw, type=kind, strict=False)
    except (ValueError, RecursionError) as error:
        raise InvalidOption(f"`{name[:80]}`: {str(error)[:200]}", field=name) from error


def _unescaped(raw: msgspec.Raw, name: str) -> memoryview:
    """Return the text of a JSON string that can be a file; one byte a character.

    Raises:
        InvalidRequest: a character is not ASCII or has another escape, and would widen all characters of a `str`.
    """
    text = memoryview(raw)
    if block := next((block for block in blocks_of(text) if not block.isascii()), b""):
        raise strange_character(name, block.translate(None, _ASCII))
    if strange := _STRANGE_ESCAPE.search(text):
        raise strange_character(name, msgspec.json.decode(b'"' + strange.group() + b'"', type=str).encode())
    return memoryview(_converted(raw, str, name).encode())
