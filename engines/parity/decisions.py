"""The cache of an engine's measurements for a model on this host, so that the next start need not repeat them.

The key is a fingerprint of everything that the entry depends on (model, runtime, processor). Entries that are stale,
damaged or of another host are treated as missing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from engines.files.atomic import write_atomically
from engines.files.regular import read_regular

_log = structlog.get_logger(__name__)
_MAX_BYTES = 2**16


class Decision(BaseModel):
    """The precision that an engine uses for a model, and the reason."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    precision: str
    why: str


def fingerprint(facts: Mapping[str, object]) -> str:
    """Hash the facts into a short key that does not depend on their order."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:32]


class DecisionCache:
    """A cache of decisions: one small JSON file for each fingerprint, in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get(self, key: str) -> Decision | None:
        """Return the stored decision; None if there is none or its file is damaged."""
        try:
            return Decision.model_validate_json(read_regular(self._path(key), _MAX_BYTES))
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            _log.warning("decision ignored", path=str(self._path(key)), reason=type(error).__name__)
            return None

    def put(self, key: str, decision: Decision) -> None:
        """Store a decision; if that fails, the next start only takes longer."""
        try:
            write_atomically(self._path(key), decision.model_dump_json().encode())
        except OSError as error:
            _log.warning("decision not kept", path=str(self._path(key)), reason=error.strerror)

    def _path(self, key: str) -> Path:
        return self._directory / f"{key}.json"
