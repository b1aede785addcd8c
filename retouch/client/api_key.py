"""The API key that the client sends: from the environment, so that it shows in no process list or shell history."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from engines.errors import RetouchError

KEY_VARIABLES = ("RETOUCH_API_KEY", "RETOUCH_API_KEY_FILE")
"""The key, or a file with it. The server's settings leave both alone: on one machine both may be set."""


class KeyFileUnreadable(RetouchError):
    """The file with the API key cannot be read."""


class KeyUnusable(RetouchError):
    """The key has characters that an HTTP header cannot carry."""


def key_headers(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the header with the key in RETOUCH_API_KEY or the file RETOUCH_API_KEY_FILE; empty if neither is set.

    Raises:
        KeyFileUnreadable: the file cannot be read.
        KeyUnusable: the key has characters other than printable ASCII.
    """
    variable, file_variable = KEY_VARIABLES
    key, source = environ.get(variable), variable
    if key is None and file_variable in environ:
        path = Path(environ[file_variable])
        try:
            key, source = path.read_text("utf-8"), file_variable
        except (OSError, UnicodeDecodeError) as error:
            raise KeyFileUnreadable(f"{file_variable} is {path}: {error}") from error
    if not key:
        return {}
    key = key.strip()
    if not (key.isascii() and key.isprintable()):  # the message must not contain the key itself
        raise KeyUnusable(
            f"{source} holds characters that no key has; write the key there as `retouch keys create` printed it"
        )
    return {"X-API-Key": key}
