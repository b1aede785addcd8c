"""A cache of small records, such as measurements of this host, so that the next start need not repeat them.

The key of a record is a fingerprint of everything that it depends on (model, runtime, processor). A record that is
damaged or of another form is treated as missing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Generic, TypeVar

import structlog
from pydantic import BaseModel, ValidationError

from engines.files.atomic import write_atomically
from engines.files.regular import read_regular

_log = structlog.get_logger(__name__)
_MAX_BYTES = 2**16
Record = TypeVar("Record", bound=BaseModel)


def fingerprint(facts: Mapping[str, object]) -> str:
    """Return a short hash of the facts, independent of their order."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:32]


class RecordCache(Generic[Record]):
    """One JSON file for each key.

    Args:
        directory: the folder of the files; made when it is needed.
        kind: the type of the records.
        word: the name of a record in the log, such as `decision`.
    """

    def __init__(self, directory: Path, kind: type[Record], word: str) -> None:
        self._directory, self._kind, self._word = directory, kind, word

    def get(self, key: str) -> Record | None:
        """Return the stored record; None if there is none or its file is damaged, which is logged."""
        try:
            return self._kind.model_validate_json(read_regular(self._path(key), _MAX_BYTES))
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            _log.warning(f"{self._word} ignored", path=str(self._path(key)), reason=type(error).__name__)
            return None

    def put(self, key: str, record: Record) -> None:
        """Store a record; if that fails, which is logged, the next start only takes longer."""
        try:
            write_atomically(self._path(key), record.model_dump_json().encode())
        except OSError as error:
            _log.warning(f"{self._word} not kept", path=str(self._path(key)), reason=error.strerror)

    def _path(self, key: str) -> Path:
        return self._directory / f"{key}.json"
