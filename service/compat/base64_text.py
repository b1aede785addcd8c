"""Decodes a file from base64 or a data URL, and refuses text of which Python's decoder would silently skip a part."""

from __future__ import annotations

import binascii
import re
import string
from collections.abc import Iterator

from service.core.errors import InvalidRequest

_BLOCK_BYTES = 1 << 16
"""Bytes of a text that are copied at a time to check their characters."""
_DATA_URL_BYTES = 1024
"""Largest prefix of a data URL, up to its comma, with white space before it."""
_IN_BASE64 = re.compile(rb"; *base64\Z", re.IGNORECASE)
"""Matches the end of such a prefix, before its comma."""
_SPACE = string.whitespace.encode()
_CHARACTERS = (string.ascii_letters + string.digits + "+/=").encode() + _SPACE
_KINDS = bytes(byte if byte in _SPACE else ord("A") for byte in range(256))
"""Table that makes all characters but white space equal."""


def decode_base64(text: memoryview, name: str) -> bytes:
    """Return the file in a text, which may be a data URL and may be divided into lines.

    Raises:
        InvalidRequest: the text is not base64, is cut off or continues after its end, or is another URL, which is never
            fetched; the message and `field` have `name`.
    """
    text = text[_start_of(bytes(text[:_DATA_URL_BYTES]), name) :]
    try:
        data = binascii.a2b_base64(text)
    except binascii.Error as error:
        _check(text, name)
        why = "its length shows that a part is missing; send all of it, with = at its end"
        raise InvalidRequest(f"`{name}` is not base64: {why}", field=name) from error
    if len(text) != -(-len(data) // 3) * 4:  # the decoder skipped something
        _check(text, name)
    return data


def blocks_of(text: memoryview) -> Iterator[bytes]:
    """Yield a text in pieces, each of which is searched as fast as the text would be if it were `bytes`."""
    return (bytes(text[start : start + _BLOCK_BYTES]) for start in range(0, len(text), _BLOCK_BYTES))


def strange_character(name: str, strange: bytes) -> InvalidRequest:
    """Return the error for a text with strange characters, in UTF-8, of which the first is named."""
    first = strange.decode(errors="replace")[0]
    return InvalidRequest(f"`{name}` is not base64: it has {first!r}; send A-Z, a-z, 0-9, + and /", field=name)


def _start_of(beginning: bytes, name: str) -> int:
    """Return the index at which base64 begins in a string: 0, or after the prefix of a data URL.

    Raises:
        InvalidRequest: the text is another URL, or a data URL without base64.
    """
    if beginning.lstrip()[:5].lower() == b"data:":
        head, comma, _ = beginning.partition(b",")
        if not comma or not _IN_BASE64.search(head):
            raise InvalidRequest(f"`{name}` is a data URL without base64; send data:image/png;base64,…", field=name)
        return len(head) + 1
    if b"://" in beginning:
        raise InvalidRequest(f"`{name}` is a URL; this server fetches none: send the file itself in base64", field=name)
    return 0


def _check(text: memoryview, name: str) -> None:
    """Check what the decoder skips: only line breaks, and spaces beside them or at the ends, are allowed.

    Raises:
        InvalidRequest: the text has another character, such as the `-` and `_` of base64url, or a space in place of
            each `+`, as after decoding as a form; or base64 follows its padding, and would be left out.
    """
    padded, end = False, b""
    for block in blocks_of(text):
        if strange := block.translate(None, _CHARACTERS):
            raise strange_character(name, strange)
        before, padding, after = block.partition(b"=")
        if after.strip(_SPACE + b"=") or (padded and before.strip(_SPACE)):
            why = "text follows its padding =; encode the file as a whole, not in pieces"
            raise InvalidRequest(f"`{name}` is not base64: {why}", field=name)
        padded = padded or bool(padding)
        end = _end_without_inner_spaces(end, block, name)


def _end_without_inner_spaces(before: bytes, block: bytes, name: str) -> bytes:
    """Check that no space is between characters of one line; returns the block's end, to pass with the next block.

    Raises:
        InvalidRequest: one is.
    """
    kinds = _with_single_spaces(block.translate(_KINDS))
    if b"A A" in kinds or b"A A" in _with_single_spaces(before + kinds[:2]):
        raise strange_character(name, b" ")
    return _with_single_spaces(before + kinds[-2:])[-2:]


def _with_single_spaces(text: bytes) -> bytes:
    for spaces in (b" " * 256, b" " * 16, b"  "):  # long runs first, as each step takes time for every run it replaces
        while spaces in text:
            text = text.replace(spaces, b" ")
    return text
