"""What an engine found out about a model on this host, remembered so that the next start need not find out again.

An entry belongs to a fingerprint of everything it depends on (model, runtime, processor); one that is foreign,
stale or damaged simply is not found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from engines.files.regular import read_regular
from engines.files.whole import write_whole

_log = structlog.get_logger(__name__)
_MOST_BYTES = 2**16


class Decision(BaseModel):
    """A precision, and why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    precision: str
    why: str


def fingerprint(facts: Mapping[str, object]) -> str:
    """A name for these facts, the same on every run and for every order of them."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:32]


class DecisionCache:
    """One small JSON file for each fingerprint, under `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get(self, key: str) -> Decision | None:
        """What was decided; None when nothing was, or when the file is not what `put` wrote."""
        try:
            return Decision.model_validate_json(read_regular(self._path(key), _MOST_BYTES))
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            _log.warning("decision ignored", path=str(self._path(key)), reason=type(error).__name__)
            return None

    def put(self, key: str, decision: Decision) -> None:
        """Remember it; a cache that cannot be written costs time at the next start and nothing else."""
        try:
            write_whole(self._path(key), decision.model_dump_json().encode())
        except OSError as error:
            _log.warning("decision not kept", path=str(self._path(key)), reason=error.strerror)

    def _path(self, key: str) -> Path:
        return self._directory / f"{key}.json"
