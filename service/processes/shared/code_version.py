"""The version of the code that the processes of one server must share, because they share memory and messages."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path

_SHARED = ("service", "engines")
"""Packages with the messages, the layout of the shared memory, and the types in both."""


def code_version(root: Path = Path(__file__).parents[3]) -> str:
    """Return the package's version and a digest of the sources of what processes share, as they are installed now."""
    digest = hashlib.sha256()
    for path in sorted(found for package in _SHARED for found in (root / package).rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return f"{version('retouch')}+{digest.hexdigest()[:8]}"
