"""The version of the code that the processes of one server must share, because they share memory and messages."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path

_HERE = Path(__file__).parent


def code_version(folder: Path = _HERE) -> str:
    """Return the package's version and a digest of the sources of what processes share, as they are installed now."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return f"{version('retouch')}+{digest.hexdigest()[:8]}"
