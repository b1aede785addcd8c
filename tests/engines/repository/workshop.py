"""A models folder in which tests publish versions, and a repository that follows it."""

from __future__ import annotations

from pathlib import Path

from engines.fake import FakeEngine
from engines.manifest import Manifest
from engines.repository.repository import ModelRepository

LATER_S = 3600.0


class Workshop:
    """Opens fake engines, records them, and fails for chosen versions."""

    def __init__(self) -> None:
        self.opened: list[CountsCloses] = []
        self.broken: dict[str, Exception] = {}

    def open(self, _directory: Path, manifest: Manifest) -> FakeEngine:
        if manifest.key in self.broken:
            raise self.broken[manifest.key]
        self.opened.append(CountsCloses(manifest))
        return self.opened[-1]

    def engines(self, key: str) -> list[FakeEngine]:
        return [engine for engine in self.opened if engine.manifest.key == key]


class CountsCloses(FakeEngine):
    closes = 0

    def close(self) -> None:
        self.closes += 1
        super().close()


def states(repository: ModelRepository) -> dict[str, str]:
    return {f"{status.name}/{status.version}": status.state for status in repository.statuses()}


def leased(repository: ModelRepository, name: str, version: int | None = None) -> Manifest:
    """Return the manifest of the leased version."""
    with repository.lease(name, version) as served:
        return served.manifest
