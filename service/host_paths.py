"""What is said to operators names files of this host; what is said to clients names none of its folders."""

from __future__ import annotations

import re

_FOLDERS = re.compile(r"(?<![\w/.])/(?:[^/\s'\"]+/)+")
"""Of an absolute path; addresses (`http://…`), `name/version` and `engine/precision` are none."""


def without_folders(message: str) -> str:
    """The message with every absolute path shortened to its last part."""
    return _FOLDERS.sub("", message)
