"""Finds the text of a JSON body that was cut within a character, which msgspec refuses without saying so. Pure."""

from __future__ import annotations

import json
import re

from service.compat.json_strings import BYTE_ORDER_MARK, has_few_strings, strings_in

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_LONE = re.compile("[\ud800-\udfff]")
_ASCII = bytes(range(128)) + b"?" * 128
"""Table that makes any UTF-8 ASCII, so that the text of a body takes one byte for each of its bytes."""
_MAX_BYTES = 1 << 20
"""Longest JSON that is searched, without its texts that have no surrogates, as its values take many times its size."""
_MAX_PATH_LENGTH = 80
"""Length to which the path of a value is cut at each step, as long names would be copied for every value in them."""


def place_of_lone_surrogate(text: bytes | bytearray) -> str | None:
    """Return the place in a JSON text of a string with a lone surrogate, which is no character.

    Returns None without one, and if the text is malformed in another way or too long.
    """
    if not _SURROGATE.search(text) or not has_few_strings(text):
        return None
    short = _without_other_texts(text).removeprefix(BYTE_ORDER_MARK)
    if len(short) > _MAX_BYTES:
        return None
    try:  # numbers stay text, as the conversion of a long one takes quadratic time
        root = json.loads(short.translate(_ASCII), parse_int=str, parse_float=str, parse_constant=str)
        return _lone_surrogate_in(root, "")
    except (ValueError, RecursionError):
        return None


def _without_other_texts(text: bytes | bytearray) -> bytes:
    """Return a JSON text with its values that have no surrogates empty, or a beginning longer than `_MAX_BYTES`."""
    pieces, nbytes, at = list[bytes | bytearray](), 0, 0
    for start, end, is_name in strings_in(text):
        if is_name or _SURROGATE.search(text, start, end):
            continue
        pieces.append(text[at : min(start, at + _MAX_BYTES + 1)])
        nbytes, at = nbytes + len(pieces[-1]), end
        if nbytes > _MAX_BYTES:
            break
    pieces.append(text[at : at + _MAX_BYTES + 1])
    return b"".join(pieces)


def _lone_surrogate_in(value: object, path: str) -> str | None:
    if isinstance(value, str):
        return f"`{path}`" if not value.isascii() and _LONE.search(value) else None
    if isinstance(value, dict):
        if any(_LONE.search(name) for name in value):
            return f"the name of a field in `{path}`" if path else "the name of a field"
        members = ((one, f"{path}.{name[-_MAX_PATH_LENGTH:]}" if path else name) for name, one in value.items())
    elif isinstance(value, list):
        members = ((one, f"{path}[{index}]") for index, one in enumerate(value))
    else:
        return None
    return next((found for one, at in members if (found := _lone_surrogate_in(one, at[-_MAX_PATH_LENGTH:]))), None)
