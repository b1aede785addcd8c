"""What lies in the model repository's folder and what follows from it: reads and decides, loads nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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


def why_empty(root: Path) -> str | None:
    """Why there is no model under `root`, for people; None if there is one, whether or not it can be served."""
    if list_versions(root):
        return None
    try:
        there = any(root.iterdir())
    except FileNotFoundError:
        return "the folder is not there"
    except OSError as error:
        return f"the folder cannot be read ({error.strerror})"
    return f"no NAME/VERSION/{MANIFEST_FILE} in the folder" if there else "the folder is empty"


def unreadable(root: Path, found: Iterable[Key], before: Mapping[Key, Listed]) -> dict[Key, Listed]:
    """The versions of before that were not found and yet are not gone: they only cannot be read just now.

    A version is gone where its directory is, which nobody can tell while `root` itself is not there.
    """
    missing = set(before) - set(found)
    return {key: before[key] for key in sorted(missing) if not _is_gone(root, before[key].directory)}


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


def _is_gone(root: Path, directory: Path) -> bool:
    try:
        directory.stat()
    except (FileNotFoundError, NotADirectoryError):
        return root.is_dir()
    except OSError:
        return False
    return False


def _directories(path: Path) -> list[Path]:
    try:
        return sorted(entry for entry in path.iterdir() if _is_directory(entry))
    except OSError:  # it vanished, was never made, or cannot be read now
        return []


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _files(directory: Path) -> tuple[tuple[str, int, int], ...]:
    """Empty where there is no manifest (yet)."""
    try:
        names = sorted(entry.name for entry in directory.iterdir())
    except OSError:
        return ()
    found = []
    for name in names:
        try:
            stat = (directory / name).stat()
        except OSError:  # it vanished meanwhile, or is a link to nowhere: no reason to do without the others
            continue
        found.append((name, stat.st_size, stat.st_mtime_ns))
    return tuple(found) if any(name == MANIFEST_FILE for name, _, _ in found) else ()
