"""The key that a client of ours sends: from the environment, where neither a process list nor a history shows it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from engines.errors import RetouchError

KEY_VARIABLES = ("RETOUCH_API_KEY", "RETOUCH_API_KEY_FILE")
"""The key, or a file with it. The server's settings leave both alone: on one machine both may be set."""


class KeyFileUnreadable(RetouchError):
    """The file that should hold the key cannot be read."""


class KeyUnusable(RetouchError):
    """The key has characters that no header can carry."""


def key_headers(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The header with the key of RETOUCH_API_KEY, or of the file RETOUCH_API_KEY_FILE; none where neither is set.

    Raises:
        KeyFileUnreadable: there is no such file.
        KeyUnusable: the key is not of printable ASCII alone.
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
    if not (key.isascii() and key.isprintable()):  # the key itself is not for the screen
        raise KeyUnusable(
            f"{source} holds characters that no key has; write the key there as `retouch keys create` printed it"
        )
    return {"X-API-Key": key}
