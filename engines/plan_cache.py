"""Built engines on disk, each with the facts that it was built for.

A file that is not whole, or not meant for these facts, is as good as none: the engine is built anew.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from pathlib import Path

import structlog

from engines.files.regular import read_regular
from engines.files.whole import write_whole
from engines.parity.decisions import fingerprint

_MAGIC = b"RETOUCH-PLAN-1\0\0"
_LENGTH = struct.Struct("<I")
_LARGEST_HEADER = 1 << 20
_MOST_BYTES = 16 * 2**30
"""Of a file; more than the memory of the GPUs that small models are built for."""

_log = structlog.get_logger(__name__)


class PlanCache:
    """Files of magic, header length, header (JSON: facts and sha256 of the content) and content."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, facts: Mapping[str, object]) -> Path:
        """Where the plan for these facts lies."""
        return self._directory / f"{facts.get('model', 'shared')}-{fingerprint(facts)}.plan".replace("/", "-")

    def get(self, facts: Mapping[str, object]) -> bytes | None:
        """The content that was put for exactly these facts; None when there is none, or it is damaged or foreign."""
        path = self.path(facts)
        try:
            return _unpack(read_regular(path, _MOST_BYTES), facts)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _log.warning("plan ignored", path=str(path), reason=str(error))
            return None

    def put(self, facts: Mapping[str, object], content: bytes) -> None:
        """Keep it; a cache that cannot be written costs time at the next start and nothing else."""
        path = self.path(facts)
        try:
            write_whole(path, _pack(facts, content))
        except OSError as error:
            _log.warning("plan not kept", path=str(path), reason=error.strerror)

    def discard(self, facts: Mapping[str, object]) -> None:
        """Forget a plan that the runtime refused; one that cannot be removed is refused again at the next start."""
        path = self.path(facts)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("plan not removed", path=str(path), reason=error.strerror)


def _pack(facts: Mapping[str, object], content: bytes) -> bytes:
    header = json.dumps({"facts": _plain(facts), "sha256": hashlib.sha256(content).hexdigest()}).encode()
    return b"".join((_MAGIC, _LENGTH.pack(len(header)), header, content))


def _unpack(file: bytes, facts: Mapping[str, object]) -> bytes:
    start = len(_MAGIC) + _LENGTH.size
    if not file.startswith(_MAGIC) or len(file) < start:
        raise ValueError("no plan of this format")
    (length,) = _LENGTH.unpack(file[len(_MAGIC) : start])
    if length > min(_LARGEST_HEADER, len(file) - start):
        raise ValueError("its header is cut off")
    header = json.loads(file[start : start + length])
    if not isinstance(header, dict) or header.get("facts") != _plain(facts):
        raise ValueError("it was built for another host, model or version")
    content = file[start + length :]
    if hashlib.sha256(content).hexdigest() != header.get("sha256"):
        raise ValueError("it is cut off or damaged")
    return content


def _plain(facts: Mapping[str, object]) -> object:
    """The facts as they look after a trip through JSON."""
    return json.loads(json.dumps(facts, sort_keys=True, default=str))
