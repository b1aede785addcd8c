"""Cursors of a paged list: the position of the last result, bound to the owner and the filter of its list. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from typing import NamedTuple

from service.core.errors import InvalidOption
from service.saving.storage.contract import is_result_id

_MAX_CHARACTERS = 256


class Position(NamedTuple):
    """The position of a result in a list that is sorted by time and id."""

    created_at: float
    """Seconds since the epoch."""
    id: str


def encode(position: Position, binding: object) -> str:
    """Return the cursor of a position.

    Args:
        position: the last result of the page.
        binding: the owner and the filter, as a JSON value; `decode` must get the same.
    """
    text = json.dumps([*position, _digest(binding)], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(cursor: str, binding: object) -> Position:
    """Return the position of a cursor.

    Raises:
        InvalidOption: code `cursor_invalid`: the text is not a cursor, or it is one of another list.
    """
    try:
        padded = cursor[:_MAX_CHARACTERS] + "=" * (-len(cursor[:_MAX_CHARACTERS]) % 4)
        created_at, result_id, digest = json.loads(base64.b64decode(padded, b"-_", validate=True))
        position = Position(float(created_at), str(result_id))
    except (binascii.Error, ValueError, TypeError, OverflowError, RecursionError):
        raise _invalid() from None
    if digest != _digest(binding) or not is_result_id(position.id):
        raise _invalid()
    return position


def _digest(binding: object) -> str:
    return hashlib.sha256(json.dumps(binding).encode()).hexdigest()[:16]


def _invalid() -> InvalidOption:
    return InvalidOption(
        "the cursor does not belong to this list: send `next_cursor` of the page before, with the same filter",
        code="cursor_invalid",
    )
