"""The cache of built engines on disk, each with the facts that it was built for.

A file that is damaged or was built for other facts is treated as missing: the engine is built again.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path

import structlog

from engines.files.atomic import write_atomically
from engines.files.record_cache import fingerprint
from engines.files.regular import read_regular

_MAGIC = b"RETOUCH-PLAN-1\0\0"
_LENGTH = struct.Struct("<I")
_MAX_HEADER_BYTES = 1 << 20
_MAX_BYTES = 16 * 2**30
"""The largest file in bytes, far above any plan of such models."""

_log = structlog.get_logger(__name__)


class PlanCache:
    """Cache files of this layout: magic, header length, header (JSON: facts and the content's SHA-256), content."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, facts: Mapping[str, object]) -> Path:
        """Return the file of the plan for these facts."""
        return self._directory / f"{facts.get('model', 'shared')}-{fingerprint(facts)}.plan".replace("/", "-")

    def get(self, facts: Mapping[str, object]) -> bytes | None:
        """Return the content stored for exactly these facts; None if there is none or it is damaged."""
        path = self.path(facts)
        try:
            return _unpack(read_regular(path, _MAX_BYTES), facts)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _log.warning("plan ignored", path=str(path), reason=str(error))
            return None

    def put(self, facts: Mapping[str, object], content: bytes) -> None:
        """Store the content; if that fails, the next start only takes longer."""
        path = self.path(facts)
        try:
            write_atomically(path, _pack(facts, content))
        except OSError as error:
            _log.warning("plan not kept", path=str(path), reason=error.strerror)

    def discard(self, facts: Mapping[str, object]) -> None:
        """Remove a plan that the runtime refused; if that fails, it is refused again at the next start."""
        path = self.path(facts)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("plan not removed", path=str(path), reason=error.strerror)


def _pack(facts: Mapping[str, object], content: bytes) -> bytes:
    header = json.dumps({"facts": _as_plain_json(facts), "sha256": hashlib.sha256(content).hexdigest()}).encode()
    return b"".join((_MAGIC, _LENGTH.pack(len(header)), header, content))


def _unpack(file: bytes, facts: Mapping[str, object]) -> bytes:
    start = len(_MAGIC) + _LENGTH.size
    if not file.startswith(_MAGIC) or len(file) < start:
        raise ValueError("no plan of this format")
    (length,) = _LENGTH.unpack(file[len(_MAGIC) : start])
    if length > min(_MAX_HEADER_BYTES, len(file) - start):
        raise ValueError("its header is cut off")
    header = json.loads(file[start : start + length])
    if not isinstance(header, dict) or header.get("facts") != _as_plain_json(facts):
        raise ValueError("it was built for another host, model or version")
    content = file[start + length :]
    if hashlib.sha256(content).hexdigest() != header.get("sha256"):
        raise ValueError("it is cut off or damaged")
    return content


def _as_plain_json(facts: Mapping[str, object]) -> object:
    """Convert the facts to plain JSON values, so that they compare equal to those read from a file."""
    return json.loads(json.dumps(facts, sort_keys=True, default=str))
