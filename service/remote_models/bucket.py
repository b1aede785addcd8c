"""Model versions in a bucket: the files of `NAME/VERSION`, and `files.json` with the size and SHA-256 of each.

`files.json` is written last and removed first, so a version without it counts as missing. A version never changes.
"""

from __future__ import annotations

import errno
import hashlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from engines.errors import ManifestInvalid, ModelError
from engines.files.regular import irregular_entries, open_regular
from engines.repository.listing import VersionKey, read_manifest_of
from service.saving.storage.s3 import ObjectStorage

FILES_FILE = "files.json"
_VERSION = re.compile(r"(?P<name>[a-z0-9][a-z0-9_-]{0,63})/(?P<version>[1-9][0-9]{0,8})/" + re.escape(FILES_FILE))
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_CHUNK = 4 * 2**20
_MAX_FILES_FILE_BYTES = 2**20
"""Size limit of a `files.json`, in bytes."""
_BYTES = "application/octet-stream"
_UNREADABLE = (-1, 0.0)
"""State of a `files.json` that could not be read, and is read again at the next listing."""


class VersionRefused(ModelError):
    """A version cannot be published, or its files in the bucket cannot be served; the message says why."""


class FileFacts(msgspec.Struct, frozen=True):
    """Size in bytes and SHA-256 of one file."""

    size: int
    sha256: str


class _Files(msgspec.Struct, frozen=True):
    files: dict[str, FileFacts]


_decode_files = msgspec.json.Decoder(_Files).decode
"""Made with the class: two threads that are the first to decode a class crash the process (msgspec 0.22)."""


@dataclass(frozen=True, slots=True)
class RemoteVersion:
    """A version as its `files.json` describes it.

    digest: SHA-256 of `files.json`, by which hosts compare versions.
    content: the bytes of `files.json`.
    """

    key: VersionKey
    files: dict[str, FileFacts]
    digest: str
    content: bytes

    def __str__(self) -> str:
        return f"{self.key}@{self.digest[:12]}"


@dataclass(slots=True)
class ModelBucket:
    """Versions in a bucket. All methods block, and raise OSError if the bucket cannot be reached."""

    objects: ObjectStorage
    _known: dict[VersionKey, tuple[tuple[int, float], RemoteVersion | None]] = field(default_factory=dict)
    """Versions found by the last listing, with size and time of their `files.json`; None for a damaged one."""
    _closed: threading.Event = field(default_factory=threading.Event)
    read_error: OSError | None = None
    """The error that kept the last listing from reading an existing `files.json`; None if there was none."""

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called, because the server ends."""
        return self._closed.is_set()

    def close(self) -> None:
        """Make a fetch in progress raise OSError."""
        self._closed.set()

    def versions(self) -> dict[VersionKey, RemoteVersion | None]:
        """List the versions; the value is None if a version's `files.json` is damaged, too large or unreadable.

        An unreadable one sets `read_error`. Only new and changed `files.json` up to 1 MiB are read.
        """
        self.read_error = None
        found: dict[VersionKey, tuple[tuple[int, float], RemoteVersion | None]] = {}
        for entry in self.objects.entries():
            if match := _VERSION.fullmatch(entry.name):
                key, state = VersionKey(match["name"], int(match["version"])), (entry.size, entry.modified_at)
                known = self._known.get(key)
                if known and known[0] == state:
                    found[key] = known
                elif entry.size > _MAX_FILES_FILE_BYTES:
                    found[key] = (state, None)
                else:
                    found[key] = self._read_listed(key, state)
        self._known = {key: one for key, one in found.items() if one[0] != _UNREADABLE}
        return {key: version for key, (_, version) in found.items()}

    def fetch(self, version: RemoteVersion, folder: Path) -> None:
        """Write a version's files into a new folder, and verify them.

        Raises:
            VersionRefused: a file is missing or differs from its description in `files.json`.
            ManifestInvalid: the manifest is malformed, or belongs to another model.
            OSError: the bucket cannot be reached, or the files cannot be written.
        """
        sizes = {entry.name: entry.size for entry in self.objects.entries_under(str(version.key))}
        for name, facts in version.files.items():
            if sizes.get(f"{version.key}/{name}") != facts.size:
                raise _differs(f"{version.key}/{name}", facts)
        folder.mkdir(parents=True)
        for name, facts in version.files.items():
            whole, digest, left = f"{version.key}/{name}", hashlib.sha256(), facts.size
            with (folder / name).open("xb") as file:
                for chunk in self._chunks(whole):
                    left -= len(chunk)
                    if left < 0:
                        break
                    digest.update(chunk)
                    file.write(chunk)
            if left or digest.hexdigest() != facts.sha256:
                raise _differs(whole, facts)
        read_manifest_of(version.key, folder)
        (folder / FILES_FILE).write_bytes(version.content)

    def push(self, key: VersionKey, folder: Path) -> RemoteVersion:
        """Publish the version in a folder; publishing the same files again changes nothing.

        Raises:
            VersionRefused: the files cannot be published, or the bucket has other files under that version.
            ManifestInvalid: the folder has no manifest, or one of another model.
            OSError: the bucket or the folder cannot be read or written.
        """
        if not _VERSION.fullmatch(f"{key}/{FILES_FILE}"):
            raise VersionRefused(f"{key} is not NAME/VERSION with a version of at most 9 digits, as photos/5")
        read_manifest_of(key, folder)
        version = _describe(key, folder)
        there = self._read(key)
        if there is not None and there.digest != version.digest:
            raise VersionRefused(f"the bucket has other files as {key}; publish these as the next version")
        if there is None:
            for name in version.files:
                self.objects.put(f"{key}/{name}", folder / name, _BYTES)
            self.objects.put(f"{key}/{FILES_FILE}", version.content, "application/json")
        return version

    def withdraw(self, key: VersionKey) -> int:
        """Remove a version from the bucket, including the remains of an interrupted push.

        Servers then serve the model's previous version. Returns the number of objects that were removed.
        """
        names = [entry.name for entry in self.objects.entries_under(str(key))]
        listed = f"{key}/{FILES_FILE}"
        for name in sorted(names, key=lambda name: name != listed):
            self.objects.delete(name)
        return len(names)

    def _read_listed(self, key: VersionKey, state: tuple[int, float]) -> tuple[tuple[int, float], RemoteVersion | None]:
        try:
            return state, self._read(key)
        except OSError as error:
            if self.is_closed:
                raise
            self.read_error = error
            return _UNREADABLE, None

    def _read(self, key: VersionKey) -> RemoteVersion | None:
        content = self.objects.load(f"{key}/{FILES_FILE}")
        return None if content is None else read_files(key, content)

    def _chunks(self, name: str) -> Iterator[bytes]:
        try:
            for chunk in self.objects.load_in_chunks(name, _CHUNK):
                if self._closed.is_set():
                    raise OSError(errno.ECANCELED, "the server ends")
                yield chunk
        except FileNotFoundError:  # the version was withdrawn meanwhile
            return


def read_files(key: VersionKey, content: bytes) -> RemoteVersion | None:
    """Parse a `files.json`; None if it is damaged or has an invalid file name or size."""
    try:
        files = _decode_files(content).files
    except (msgspec.MsgspecError, RecursionError):
        return None
    if FILES_FILE in files or not all(_FILE_NAME.fullmatch(name) and one.size >= 0 for name, one in files.items()):
        return None
    return RemoteVersion(key, files, hashlib.sha256(content).hexdigest(), content)


def _differs(name: str, facts: FileFacts) -> VersionRefused:
    return VersionRefused(
        f"{name} in the bucket differs from what {FILES_FILE} says, {facts.size} bytes of SHA-256 "
        f"{facts.sha256[:12]}…; withdraw it, and push it as another version"
    )


def _describe(key: VersionKey, folder: Path) -> RemoteVersion:
    names = sorted(path.name for path in folder.iterdir() if path.name != FILES_FILE)
    wrong = [*irregular_entries(folder), *(name for name in names if not _FILE_NAME.fullmatch(name))]
    if wrong or any((folder / name).is_dir() for name in names):
        raise VersionRefused(f"{folder} may contain files only, with names of letters, digits, `.`, `-` and `_`")
    files = {}
    for name in names:
        with open_regular(folder / name) as file:
            digest, size = hashlib.sha256(), 0
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                size += len(chunk)
        files[name] = FileFacts(size, digest.hexdigest())
    content = msgspec.json.format(msgspec.json.encode(_Files(files)), indent=1)
    version = read_files(key, content)
    if len(content) > _MAX_FILES_FILE_BYTES:
        raise VersionRefused(f"{folder} has too many files, {len(files)}")
    if version is None:
        raise ManifestInvalid(f"{folder} cannot be described")
    return version
