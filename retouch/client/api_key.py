"""The API key that the client sends: an argument or, hidden from process lists, from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from retouch.client.errors import KeyFileUnreadable, KeyUnusable

KEY_VARIABLES = ("RETOUCH_API_KEY", "RETOUCH_API_KEY_FILE")
"""Environment variables for the key, or for a file with it. The server's settings ignore both, so that client and
server can share a machine."""


def key_headers(key: str | None = None, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the header with the API key; empty without a key.

    Args:
        key: the key; None for the one in RETOUCH_API_KEY or in the file RETOUCH_API_KEY_FILE, "" for no key.
        environ: the environment.

    Raises:
        KeyFileUnreadable: the file cannot be read.
        KeyUnusable: the key has characters other than printable ASCII.
    """
    variable, file_variable = KEY_VARIABLES
    source = "api_key"
    if key is None:
        key, source = environ.get(variable), variable
    if key is None and file_variable in environ:
        key, source = _read_key(Path(environ[file_variable]), file_variable), file_variable
    if not key:
        return {}
    key = key.strip()
    if not fits_header(key):  # the message must not contain the key itself
        raise KeyUnusable(
            f"{source} contains characters that no key has; copy the key as `retouch keys create` printed it"
        )
    return {"X-API-Key": key}


def fits_header(value: str) -> bool:
    """Return whether an HTTP header can carry the value: printable ASCII."""
    return value.isascii() and value.isprintable()


def _read_key(path: Path, variable: str) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise KeyFileUnreadable(f"{variable} is {path}: {getattr(error, 'strerror', None) or error}") from error
