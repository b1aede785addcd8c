"""The models folder of this host, with versions from the bucket and versions that were put there by hand.

A version is fetched into `.fetched/`, which the model repository does not read, and then moved to its place in one
step, so every served version is complete. A version from the bucket has `files.json` in its folder.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from engines.repository.listing import VersionFiles, VersionKey, list_versions
from service.remote_models.bucket import FILES_FILE, RemoteVersion, read_files

_STAGE = ".fetched"
_LOCK = ".lock"
_PARTIAL = ".partial"
_DAMAGED = "damaged"
"""Stands for the digest of an installed version whose files lost bytes, as in a power failure; equals no real digest.
"""
_HEADROOM_BYTES = 64 * 2**20
"""Free bytes that a fetch must leave on the disk."""


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """The models folder. All methods block, and raise OSError if the disk cannot be read or written."""

    root: Path

    @contextmanager
    def lock(self) -> Iterator[bool]:
        """Hold the fetch lock during the block, after removing leftovers; yields False if another process holds it."""
        stage = self.root / _STAGE
        stage.mkdir(parents=True, exist_ok=True)
        with (stage / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            for half in stage.glob(f"*{_PARTIAL}"):
                with suppress(OSError):  # only a fetch that needs this name will fail
                    _remove(half)
            yield True

    def installed(self) -> dict[VersionKey, str | None]:
        """Return the installed versions, each with its digest if it came from the bucket, else None.

        If the file sizes of a version from the bucket have changed since it was fetched, its digest matches no version.
        """
        return {key: _digest(key, files) for key, files in list_versions(self.root).items()}

    def is_staged(self, version: RemoteVersion) -> bool:
        """Return whether a version was fetched and is not yet installed."""
        return self._staged(version).is_dir()

    def stage(self, version: RemoteVersion, fetch: Callable[[Path], None]) -> None:
        """Fetch a version durably into the staging folder.

        Args:
            version: the version.
            fetch: creates the folder at the path that it gets, and writes the version's files there.

        Raises:
            OSError: the disk has too little space or cannot be written, or the version's place is taken.
            Exception: any error that `fetch` raises.
        """
        needed, free = sum(facts.size for facts in version.files.values()), shutil.disk_usage(self.root).free
        if free < needed + _HEADROOM_BYTES:
            raise OSError(
                errno.ENOSPC,
                f"it has {needed} bytes, and the disk of {self.root} {free} free; make room, or withdraw old versions",
            )
        self._require_free_folder(version.key)
        staged = self._staged(version)
        partial = staged.with_name(staged.name + _PARTIAL)
        try:
            fetch(partial)
            for path in (*partial.iterdir(), partial):
                _sync(path)
            partial.rename(staged)
        except BaseException:
            with suppress(OSError):
                shutil.rmtree(partial)
            raise

    def install(self, version: RemoteVersion) -> None:
        """Move a staged version to where it is served, replacing a version from the bucket with the same number."""
        self._require_free_folder(version.key)
        place = self._version_folder(version.key)
        place.parent.mkdir(exist_ok=True)
        if (place / FILES_FILE).exists():
            self.remove(version.key)
            place.parent.mkdir(exist_ok=True)
        self._staged(version).rename(place)
        _sync(place.parent)

    def remove(self, key: VersionKey) -> None:
        """Remove an installed version; processes that list the folder see it whole or not at all."""
        away = self.root / _STAGE / f"{key.name}-{key.version}-removed{_PARTIAL}"
        self._version_folder(key).rename(away)
        shutil.rmtree(away)
        with suppress(OSError):  # other versions are in it
            self._version_folder(key).parent.rmdir()

    def clear_staged(self, keep: set[str]) -> None:
        """Remove staged versions except those in `keep`, each as `NAME/VERSION@DIGEST`."""
        names = {_folder_name(text) for text in keep}
        for path in (self.root / _STAGE).iterdir():
            if path.name not in names and path.name != _LOCK:
                _remove(path)

    def _require_free_folder(self, key: VersionKey) -> None:
        """Raise OSError if the version's place is taken by anything that is not from the bucket."""
        place = self._version_folder(key)
        if os.path.lexists(place) and not (place / FILES_FILE).exists() and not _is_empty(place):
            raise OSError(errno.ENOTEMPTY, f"{place} holds something else; remove it, or publish the next version")

    def _version_folder(self, key: VersionKey) -> Path:
        return self.root / key.name / str(key.version)

    def _staged(self, version: RemoteVersion) -> Path:
        return self.root / _STAGE / _folder_name(str(version))


def _folder_name(version: str) -> str:
    return version.replace("/", "-")


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _remove(path: Path) -> None:
    """Remove a file, a link, or a folder with its contents."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _sync(path: Path) -> None:
    """Wait until a file's data, or a folder's entries, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(key: VersionKey, listed: VersionFiles) -> str | None:
    try:
        content = (listed.directory / FILES_FILE).read_bytes()
    except OSError:  # missing or unreadable: the version is then neither replaced nor removed
        return None
    version, sizes = read_files(key, content), {name: size for name, size, _ in listed.files}
    if version is None or any(sizes.get(name) != facts.size for name, facts in version.files.items()):
        return _DAMAGED
    return version.digest
