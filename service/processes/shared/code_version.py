"""The code version, which all processes of one server must have in common, as they share memory and messages."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path

_SHARED = ("service", "engines")
"""Packages that define the messages, the layout of the shared memory, and the types used in both."""


def code_version(root: Path = Path(__file__).parents[3]) -> str:
    """Return `VERSION+DIGEST`: the package's version, and a digest of the shared packages' installed sources."""
    digest = hashlib.sha256()
    for path in sorted(found for package in _SHARED for found in (root / package).rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return f"{version('retouch')}+{digest.hexdigest()[:8]}"
