"""Lists the version directories of the model repository and decides which to load; loads nothing itself."""

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

_NAMES = "a model's name has lower-case letters, digits, - and _ only, at most 64, and begins with a letter or digit"
_NO_VERSION = f"{MANIFEST_FILE} belongs in NAME/VERSION"
_ALONE = f"{_NO_VERSION}; is the models folder one higher?"
_VERSIONS = "a version is a number from 1, without zeros before it"

State = Literal["ready", "refused", "available"]


class VersionKey(NamedTuple):
    """One version of one model."""

    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.name}/{self.version}"


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """A version directory as it was listed.

    files: (name, size in bytes, modification time in ns) of each file; a changed value means changed content.
    """

    directory: Path
    files: tuple[tuple[str, int, int], ...]

    def is_settled(self, now_s: float, settle_s: float) -> bool:
        """Return whether no file was written within `settle_s` seconds of now (either side: clocks differ)."""
        return all(abs(now_s - mtime_ns / 1e9) >= settle_s for _, _, mtime_ns in self.files)


@dataclass(frozen=True, slots=True)
class FolderListing:
    """The directories of a models folder that have a manifest.

    versions: those that can be served.
    misnamed: those that are not named NAME/VERSION and so not served, each with the reason. Hidden directories are left
        out: programs use them while they write models.
    """

    versions: dict[VersionKey, VersionFiles]
    misnamed: dict[Path, str]


@dataclass(frozen=True, slots=True)
class VersionState:
    """The state of a version in the repository, and the files that the state was determined from."""

    state: State
    files: tuple[tuple[str, int, int], ...]


def list_folder(root: Path) -> FolderListing:
    """List a models folder, reading each directory once; directories that cannot be read now are left out."""
    versions: dict[VersionKey, VersionFiles] = {}
    misnamed: dict[Path, str] = {}
    for model in _list_directory(root):
        if model.name.startswith(".") or not _is_directory(model):
            continue
        named = bool(_NAME.match(model.name))
        entries = _list_directory(model)
        if _file_states(entries):
            misnamed[model] = _ALONE if _VERSION.match(model.name) else f"{_NO_VERSION}, such as {model.name}/1"
        for directory in entries:
            if directory.name.startswith(".") or not _is_directory(directory):
                continue
            files = _file_states(_list_directory(directory))
            if files and named and _VERSION.match(directory.name):
                versions[VersionKey(model.name, int(directory.name))] = VersionFiles(directory, files)
            elif files:
                misnamed[directory] = _VERSIONS if named else _NAMES
    return FolderListing(versions, misnamed)


def list_versions(root: Path) -> dict[VersionKey, VersionFiles]:
    """Return the version directories under `root` that have a manifest; others are incomplete or not models."""
    return list_folder(root).versions


def why_empty(root: Path) -> str | None:
    """Return why there is no model under `root`, for people; None if there is one, servable or not."""
    listing = list_folder(root)
    if listing.versions:
        return None
    try:
        there = any(root.iterdir())
    except FileNotFoundError:
        return "the folder is not there"
    except OSError as error:
        return f"the folder cannot be read ({error.strerror})"
    for directory, why in listing.misnamed.items():
        return f"{directory.relative_to(root)}: {why}"
    return f"no NAME/VERSION/{MANIFEST_FILE} in the folder" if there else "the folder is empty"


def unreadable_versions(
    root: Path, found: Iterable[VersionKey], before: Mapping[VersionKey, VersionFiles]
) -> dict[VersionKey, VersionFiles]:
    """Return the versions of `before` that are missing from `found` only because they cannot be read now.

    A version counts as removed only if its directory was removed, which cannot be known while `root` itself is missing.
    """
    missing = set(before) - set(found)
    return {key: before[key] for key in sorted(missing) if not _is_removed(root, before[key].directory)}


def read_manifest_of(key: VersionKey, directory: Path) -> Manifest:
    """Read a version's manifest and check its name and version.

    Raises:
        ManifestInvalid: it is malformed, or belongs to another model.
    """
    manifest = read_manifest(directory)
    if (manifest.name, manifest.version) != key:
        raise ManifestInvalid(
            f"{directory / MANIFEST_FILE} is of {manifest.key}; rename the directory, or export {key} again"
        )
    return manifest


def removed_versions(found: Iterable[VersionKey], known: Iterable[VersionKey]) -> list[VersionKey]:
    """Return the known versions that no longer exist."""
    return sorted(set(known) - set(found))


def version_to_load(
    name: str, found: Mapping[VersionKey, VersionFiles], states: Mapping[VersionKey, VersionState]
) -> VersionKey | None:
    """Return the newest version of `name` that is not known to be broken; None if it is loaded already."""
    for key in sorted((key for key in found if key.name == name), reverse=True):
        now = states.get(key)
        if now is None or now.files != found[key].files or now.state == "available":
            return key
        if now.state == "ready":
            return None
    return None


def _is_removed(root: Path, directory: Path) -> bool:
    try:
        directory.stat()
    except (FileNotFoundError, NotADirectoryError):
        return root.is_dir()
    except OSError:
        return False
    return False


def _list_directory(path: Path) -> list[Path]:
    """Return the sorted entries of a directory; none if it does not exist or cannot be read now."""
    try:
        return sorted(path.iterdir())
    except OSError:
        return []


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _file_states(paths: list[Path]) -> tuple[tuple[str, int, int], ...]:
    """Return (name, size, modification time in ns) of the entries of a directory; empty without a manifest."""
    if all(path.name != MANIFEST_FILE for path in paths):
        return ()
    found = []
    for path in paths:
        try:
            stat = path.stat()
        except OSError:  # it vanished, or is a broken link; the other files still count
            continue
        found.append((path.name, stat.st_size, stat.st_mtime_ns))
    return tuple(found) if any(name == MANIFEST_FILE for name, _, _ in found) else ()
