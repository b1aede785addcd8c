"""Remembers which engines lost the GPU while they loaded a model, so that the next process passes them over.

A lost GPU ends the process. Without this memory the next one would open the same engine and be lost in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import structlog
from pydantic import BaseModel, ConfigDict

from engines.errors import DeviceLost
from engines.files.record_cache import RecordCache, fingerprint
from engines.race.finding import Course

_log = structlog.get_logger(__name__)


class Loss(BaseModel):
    """One loss of the GPU, in the words of the error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    why: str


class LossMemory:
    """The losses of one model on one GPU.

    Args:
        folder: of the records; made when it is needed.
        course: the model and its settings. Other files, settings and versions of the runtimes are tried anew.
        device: returns the facts of the GPU, with which a loss counts; without any if they cannot be read.
    """

    def __init__(self, folder: Path, course: Course, device: Callable[[], Mapping[str, object]]) -> None:
        self._folder, self._course, self._device = folder, course, device
        self._records = RecordCache(folder, Loss, "loss")
        self._keys: dict[str, str] = {}  # made before an engine is opened: a lost GPU tells no facts

    def why_not(self, engine: str) -> str:
        """Return why an engine is passed over; empty if it is to be tried. Only those that were asked for are kept."""
        if engine not in self._keys:
            self._keys[engine] = fingerprint({**self._course.facts([engine]), **self._facts(), "what": "loss"})
        loss = self._records.get(self._keys[engine])
        if loss is None:
            return ""
        return f"it lost the GPU when it loaded this model before ({loss.why}); remove {self._folder} to try it again"

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Remember a loss in this block, if it is known which engine ran."""
        try:
            yield
        except DeviceLost as lost:
            if key := self._keys.get(lost.engine):
                self._records.put(key, Loss(why=str(lost)))
                _log.warning(
                    "engine lost the GPU", model=self._course.manifest.key, engine=lost.engine, reason=str(lost)
                )
            raise

    def _facts(self) -> Mapping[str, object]:
        try:
            return self._device()
        except DeviceLost:
            raise
        except Exception:  # torch needs no cuda-python; whatever else cannot be read must not keep engines from opening
            return {}
