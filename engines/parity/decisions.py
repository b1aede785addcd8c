"""Stored decisions about engines on this host: the precision for a model, and the reason."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from engines.files.record_cache import RecordCache


class Decision(BaseModel):
    """The precision that an engine uses for a model, and the reason."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    precision: str
    why: str


class DecisionCache(RecordCache[Decision]):
    """The cache of decisions in a directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, Decision, "decision")
