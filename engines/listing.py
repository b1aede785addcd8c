"""What lies in the model repository's folder and what follows from it: reads and decides, loads nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from engines.errors import ManifestInvalid
from engines.manifest import MANIFEST_FILE, Manifest, read_manifest

_NAME = re.compile(r"^[a-z0-9][a-z0-9_-]{0,63}$")
_VERSION = re.compile(r"^[1-9][0-9]{0,8}$")

State = Literal["ready", "refused", "available"]


class Key(NamedTuple):
    """One version of one model."""

    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.name}/{self.version}"


@dataclass(frozen=True, slots=True)
class Listed:
    """A version directory as it was found.

    files: (name, size in bytes, modification time in ns) of each file; another value means other content.
    """

    directory: Path
    files: tuple[tuple[str, int, int], ...]

    def settled(self, now_s: float, settle_s: float) -> bool:
        """Whether no file was written in the last `settle_s` seconds (nor in the future: clocks differ)."""
        return all(abs(now_s - mtime_ns / 1e9) >= settle_s for _, _, mtime_ns in self.files)


@dataclass(frozen=True, slots=True)
class Known:
    """What the repository made of a version, and of which files."""

    state: State
    files: tuple[tuple[str, int, int], ...]


def list_versions(root: Path) -> dict[Key, Listed]:
    """The version directories under `root` that have a manifest; others are not there yet, or are no models."""
    found: dict[Key, Listed] = {}
    for model in _directories(root):
        if not _NAME.match(model.name):
            continue
        for directory in _directories(model):
            if _VERSION.match(directory.name) and (files := _files(directory)):
                found[Key(model.name, int(directory.name))] = Listed(directory, files)
    return found


def read_manifest_of(key: Key, directory: Path) -> Manifest:
    """The manifest, which must be the one of that name and version.

    Raises:
        ManifestInvalid: it is malformed, or belongs to another model.
    """
    manifest = read_manifest(directory)
    if (manifest.name, manifest.version) != key:
        raise ManifestInvalid(
            f"{directory / MANIFEST_FILE} is of {manifest.key}; rename the directory, or export {key} again"
        )
    return manifest


def gone(found: Iterable[Key], known: Iterable[Key]) -> list[Key]:
    """The versions that were there and are no longer."""
    return sorted(set(known) - set(found))


def next_to_load(name: str, found: Mapping[Key, Listed], known: Mapping[Key, Known]) -> Key | None:
    """The version of `name` to load now: the newest that is not known to be broken, unless it is loaded already."""
    for key in sorted((key for key in found if key.name == name), reverse=True):
        now = known.get(key)
        if now is None or now.files != found[key].files or now.state == "available":
            return key
        if now.state == "ready":
            return None
    return None


def _directories(path: Path) -> Iterator[Path]:
    try:
        yield from sorted(entry for entry in path.iterdir() if entry.is_dir())
    except OSError:  # it vanished, or was never made
        return


def _files(directory: Path) -> tuple[tuple[str, int, int], ...]:
    """Empty where there is no manifest (yet)."""
    try:
        stats = sorted((entry.name, entry.stat()) for entry in directory.iterdir())
    except OSError:  # a file vanished meanwhile: the directory is being changed, so it is not there yet
        return ()
    if not any(name == MANIFEST_FILE for name, _ in stats):
        return ()
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)
