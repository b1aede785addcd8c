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
    padded = has_spaces = has_lines = False
    for block in blocks_of(text):
        if strange := block.translate(None, _CHARACTERS):
            raise strange_character(name, strange)
        before, padding, after = block.partition(b"=")
        if after.strip(_SPACE + b"=") or (padded and before.strip(_SPACE)):
            why = "text follows its padding =; encode the file as a whole, not in pieces"
            raise InvalidRequest(f"`{name}` is not base64: {why}", field=name)
        padded = padded or bool(padding)
        has_spaces, has_lines = has_spaces or b" " in block, has_lines or b"\n" in block or b"\r" in block
    if has_spaces and not has_lines and any(b" " in block for block in blocks_of(_stripped(text))):
        raise strange_character(name, b" ")


def _stripped(text: memoryview) -> memoryview:
    """Return a text without up to `_BLOCK_BYTES` of white space at each end."""
    head, tail = bytes(text[:_BLOCK_BYTES]), bytes(text[-_BLOCK_BYTES:])
    return text[len(head) - len(head.lstrip()) : len(text) - (len(tail) - len(tail.rstrip()))]
