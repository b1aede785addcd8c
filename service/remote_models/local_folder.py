"""The models folder of this host: versions from the bucket beside those that were put there by hand.

A version is fetched into `.fetched/`, which the model repository does not read, and moved to its place in one step: a
version that is served is complete. `files.json` in its folder tells it from one that was put there by hand.
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
"""In place of the digest of an installed version that lost bytes, as after a power failure; no real digest equals
it."""
_SPARE_BYTES = 64 * 2**20
"""Space that a fetch leaves on the disk."""


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """The models folder. All methods block; OSError: the disk cannot be read or written."""

    root: Path

    @contextmanager
    def held_alone(self) -> Iterator[bool]:
        """Yield whether only this process of the host fetches; remove what a dead process left unfinished."""
        stage = self.root / _STAGE
        stage.mkdir(parents=True, exist_ok=True)
        with (stage / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            for half in stage.glob(f"*{_PARTIAL}"):
                with suppress(OSError):  # whoever needs its name fails alone
                    _remove(half)
            yield True

    def installed(self) -> dict[VersionKey, str | None]:
        """Return the versions that may be served, with the digests of those from the bucket; None for the others.

        One from the bucket whose files have other sizes than when it was fetched has the digest of no version.
        """
        return {key: _digest(key, files) for key, files in list_versions(self.root).items()}

    def is_staged(self, version: RemoteVersion) -> bool:
        """Whether a version was fetched, and waits to be installed."""
        return self._staged(version).is_dir()

    def stage(self, version: RemoteVersion, fetch: Callable[[Path], None]) -> None:
        """Fetch a version with `fetch`, which gets a folder to create, and let the disk keep it.

        Raises:
            OSError: the disk has too little space, or cannot be written.
            Exception: whatever `fetch` raises.
        """
        needed, free = sum(facts.size for facts in version.files.values()), shutil.disk_usage(self.root).free
        if free < needed + _SPARE_BYTES:
            raise OSError(
                errno.ENOSPC,
                f"it has {needed} bytes, and the disk of {self.root} {free} free; make room, or withdraw old versions",
            )
        self._require_place(version.key)
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
        """Move a staged version to where it is served, in place of one from the bucket that has the same number."""
        self._require_place(version.key)
        place = self._place(version.key)
        place.parent.mkdir(exist_ok=True)
        if (place / FILES_FILE).exists():
            self.remove(version.key)
            place.parent.mkdir(exist_ok=True)
        self._staged(version).rename(place)
        _sync(place.parent)

    def remove(self, key: VersionKey) -> None:
        """Remove an installed version, atomically for processes that list the folder."""
        away = self.root / _STAGE / f"{key.name}-{key.version}-removed{_PARTIAL}"
        self._place(key).rename(away)
        shutil.rmtree(away)
        with suppress(OSError):  # other versions are in it
            self._place(key).parent.rmdir()

    def clear_staged(self, keep: set[str]) -> None:
        """Remove staged versions whose text, `NAME/VERSION@DIGEST`, is not in `keep`."""
        names = {_folder_name(text) for text in keep}
        for path in (self.root / _STAGE).iterdir():
            if path.name not in names and path.name != _LOCK:
                _remove(path)

    def _require_place(self, key: VersionKey) -> None:
        """Raise OSError if something that is not from the bucket is where the version belongs."""
        place = self._place(key)
        if os.path.lexists(place) and not (place / FILES_FILE).exists() and not _is_empty(place):
            raise OSError(errno.ENOTEMPTY, f"{place} holds something else; remove it, or publish the next version")

    def _place(self, key: VersionKey) -> Path:
        return self.root / key.name / str(key.version)

    def _staged(self, version: RemoteVersion) -> Path:
        return self.root / _STAGE / _folder_name(str(version))


def _folder_name(version: str) -> str:
    return version.replace("/", "-")


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _sync(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _digest(key: VersionKey, listed: VersionFiles) -> str | None:
    try:
        content = (listed.directory / FILES_FILE).read_bytes()
    except OSError:  # there is none, or it cannot be read: it is neither replaced nor removed
        return None
    version, sizes = read_files(key, content), {name: size for name, size, _ in listed.files}
    if version is None or any(sizes.get(name) != facts.size for name, facts in version.files.items()):
        return _DAMAGED
    return version.digest
