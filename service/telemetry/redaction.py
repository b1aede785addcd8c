"""What is said to operators names files of this host; what is said to clients names none of its folders.

Nor does it name a runtime's own source files, which OpenVINO and ONNX Runtime put before what they mean.
"""

from __future__ import annotations

import re

_SOURCE = re.compile(r"(?:Exception from )?(?<!\S)[\w./+-]+\.(?:c|cc|cpp|cxx|cu|cuh|h|hpp|py):\d+:?\s*")
"""`Exception from src/inference/src/cpp/core.cpp:132: `."""
_QUOTED = re.compile(r"(?<!\w)(['\"])([^'\"\n]*)\1")
"""What may be a path in quotes, in which folders may have spaces."""
_ABSOLUTE = re.compile(r"(?<![\w/.])(?:file://)?/(?:[^/\s'\"]+/)+")
"""The folders of an absolute path; addresses (`http://…`) are none."""
_SLASHED = re.compile(r"(?<![\w/.:~%-])[\w.@+~-]+(?:/[\w.@+~-]+)+")
"""What may be a relative path; no part of an address, of which a colon or a slash comes before."""
_FILE = re.compile(r"\.[A-Za-z]\w*$")


def without_folders(message: str) -> str:
    """The message with every path shortened to its last part, and without the places of a runtime's sources.

    A relative path is told from `name/version` and `engine/precision` by a third part, by a file's suffix or by how it
    begins: with `.`, `..` or `~`.
    """
    message = _SOURCE.sub("", message)
    message = _QUOTED.sub(lambda found: f"{found[1]}{_shortened(found[2])}{found[1]}", message)
    message = _ABSOLUTE.sub("", message)
    return _SLASHED.sub(lambda found: _shortened(found[0]), message)


def _shortened(text: str) -> str:
    if "://" in text or "/" not in text:
        return text
    parts = text.rstrip("/").split("/")
    is_path = len(parts) > 2 or parts[0] in ("", ".", "..", "~") or _FILE.search(parts[-1])
    return parts[-1] if is_path else text
