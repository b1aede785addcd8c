"""The models folder of this host: versions from the bucket beside those that were put there by hand.

A version is fetched into `.fetched/`, which the model repository does not read, and moved to its place in one step: a
version that is served is complete. `files.json` in its folder tells it from one that was put there by hand.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from engines.repository.listing import VersionKey, list_versions
from service.remote_models.bucket import FILES_FILE, RemoteVersion, read_files

_STAGE = ".fetched"
_LOCK = ".lock"
_PARTIAL = ".partial"


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """The models folder. All methods block; OSError: the disk cannot be read or written."""

    root: Path

    @contextmanager
    def held_alone(self) -> Iterator[bool]:
        """Yield whether this process is the only one of the host that fetches; remove what a dead one left half."""
        stage = self.root / _STAGE
        stage.mkdir(parents=True, exist_ok=True)
        with (stage / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            for half in stage.glob(f"*{_PARTIAL}"):
                shutil.rmtree(half)
            yield True

    def installed(self) -> dict[VersionKey, str | None]:
        """Return the versions that may be served, with the digests of those from the bucket; None for the others."""
        return {key: _digest(key, files.directory) for key, files in list_versions(self.root).items()}

    def is_staged(self, version: RemoteVersion) -> bool:
        """Whether a version was fetched, and waits to be installed."""
        return self._staged(version).is_dir()

    def stage(self, version: RemoteVersion, fetch: Callable[[Path], None]) -> None:
        """Fetch a version with `fetch`, which gets a folder to create; raises what that raises."""
        staged = self._staged(version)
        partial = staged.with_name(staged.name + _PARTIAL)
        try:
            fetch(partial)
            partial.rename(staged)
        except BaseException:
            with suppress(OSError):
                shutil.rmtree(partial)
            raise

    def install(self, version: RemoteVersion) -> None:
        """Move a staged version to where it is served."""
        place = self._place(version.key)
        place.parent.mkdir(exist_ok=True)
        self._staged(version).rename(place)

    def remove(self, key: VersionKey) -> None:
        """Remove an installed version, in one step for those that list the folder."""
        away = self.root / _STAGE / f"{key.name}-{key.version}-removed{_PARTIAL}"
        self._place(key).rename(away)
        shutil.rmtree(away)
        with suppress(OSError):  # other versions are in it
            self._place(key).parent.rmdir()

    def clear_staged(self, keep: set[str]) -> None:
        """Remove staged versions whose text, `NAME/VERSION@DIGEST`, is not in `keep`."""
        names = {_folder_name(text) for text in keep}
        for path in (self.root / _STAGE).iterdir():
            if path.is_dir() and path.name not in names:
                shutil.rmtree(path)

    def _place(self, key: VersionKey) -> Path:
        return self.root / key.name / str(key.version)

    def _staged(self, version: RemoteVersion) -> Path:
        return self.root / _STAGE / _folder_name(str(version))


def _folder_name(version: str) -> str:
    return version.replace("/", "-")


def _digest(key: VersionKey, directory: Path) -> str | None:
    try:
        content = (directory / FILES_FILE).read_bytes()
    except FileNotFoundError:
        return None
    version = read_files(key, content)
    return version.digest if version else None
