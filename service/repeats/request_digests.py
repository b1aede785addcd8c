"""Digests of requests: the name of an Idempotency-Key, and the fingerprint of everything that determines a response."""

from __future__ import annotations

import hashlib
import re

from service.core.errors import InvalidOption
from service.core.order import Order

_KEY = re.compile(r'"[^"\\]{1,255}"|[^"\\\s]{1,255}')


def key_name(key: str, client: str, endpoint: str) -> str:
    """Return the name under which a key is stored; keys are separate for each client and endpoint.

    Raises:
        InvalidOption: the key is neither a quoted string (RFC 9651) nor one word, or longer than 255 characters.
    """
    if not _KEY.fullmatch(key):
        message = "Idempotency-Key must be 1 to 255 characters, one word or in quotes, without a backslash; send a UUID"
        raise InvalidOption(message, code="idempotency_key_invalid")
    word = key.strip('"')
    return hashlib.sha256("\n".join((client, endpoint, word)).encode()).hexdigest()


def fingerprint_of(order: Order, *varies_with: str) -> str:
    """Return a digest of everything that determines the response: the order, and the values in `varies_with`.

    A new option at its default does not change the digest, so keys and cached results stay valid after an upgrade.
    """
    digest = hashlib.sha256()
    options = order.options.model_dump_json(exclude=order.options.added_at_default)
    texts = (order.task, options, *varies_with, *(["own seeds"] if order.own_seeds else ()))
    pieces = [text.encode() for text in texts]
    for name, data in sorted(order.files.items()):
        pieces += [name.encode(), data]
    for piece in pieces:
        digest.update(len(piece).to_bytes(8, "big"))
        digest.update(piece)
    return digest.hexdigest()
