"""Removal of what a reader must not learn: this host's folders from messages to clients, API keys from logged paths.

Source positions at the beginning of OpenVINO's and ONNX Runtime's messages are removed, too.
"""

from __future__ import annotations

import re

_SOURCE = re.compile(r"(?:Exception from )?(?<!\S)[\w./+-]+\.(?:c|cc|cpp|cxx|cu|cuh|h|hpp|py):\d+:?\s*")
"""Matches a source position: `Exception from src/inference/src/cpp/core.cpp:132: `."""
_QUOTED = re.compile(r"(?<!\w)(['\"])([^'\"\n]*)\1")
"""Matches quoted text, which may be a path whose folders have spaces."""
_ABSOLUTE = re.compile(r"(?<![\w/.])(?:file://)?/(?:[^/\s'\"]+/)+")
"""Matches the folders of an absolute path, but no URL (`http://…`)."""
_SLASHED = re.compile(r"(?<![\w/.:~%-])[\w.@+~-]+(?:/[\w.@+~-]+)+")
"""Matches a possible relative path, but no part of a URL."""
_KEY_SECRET = re.compile(r"(?<=rtk_[0-9a-f]{8}_)[A-Za-z0-9_-]+")
"""Matches the secret part of an API key; the part before it names the key in every log."""
_FILE = re.compile(r"\.[A-Za-z]\w*$")


def without_folders(message: str) -> str:
    """Shorten every path in a message to its last part, and remove source positions.

    Text such as `name/version` stays; it counts as a path if it has three parts, a file suffix, or begins with `.`,
    `..` or `~`.
    """
    message = _SOURCE.sub("", message)
    message = _QUOTED.sub(lambda found: f"{found[1]}{_last_path_part(found[2])}{found[1]}", message)
    message = _ABSOLUTE.sub("", message)
    return _SLASHED.sub(lambda found: _last_path_part(found[0]), message)


def without_key_secrets(path: str) -> str:
    """Replace the secret of every API key in a path, where a client may have put it by mistake, by `…`."""
    return _KEY_SECRET.sub("…", path)


def _last_path_part(text: str) -> str:
    if "://" in text or "/" not in text:
        return text
    parts = text.rstrip("/").split("/")
    is_path = len(parts) > 2 or parts[0] in ("", ".", "..", "~") or _FILE.search(parts[-1])
    return parts[-1] if is_path else text
