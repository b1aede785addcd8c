"""Checks a zip file's directory before any entry is read.

A hostile directory names one entry twice, lets entries share bytes, or promises more than the file holds. Only
uncompressed entries are read, so together they are at most as large as the file.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from export.errors import CheckpointRefused

_ENCRYPTED = 1
_MAX_ENTRIES = 200_000
DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, ValueError, RuntimeError)
"""Errors that zipfile raises for damaged files."""


@dataclass(frozen=True)
class ZipEntries:
    """The entries of an open zip file by name, already checked."""

    path: Path
    archive: zipfile.ZipFile
    by_name: Mapping[str, zipfile.ZipInfo]

    @property
    def size(self) -> int:
        """The size of the whole file in bytes."""
        return self.path.stat().st_size

    def read(self, name: str, max_bytes: int) -> bytes:
        """Return the content of an uncompressed entry.

        Raises:
            CheckpointRefused: the entry is missing, compressed, damaged, or larger than `max_bytes`.
        """
        entry = self.by_name.get(name)
        if entry is None:
            raise CheckpointRefused(f"{self.path}: has no entry {name}; copy it again")
        if entry.compress_type != zipfile.ZIP_STORED:
            raise CheckpointRefused(f"{self.path}: entry {name} is compressed; torch never does that, unpack it first")
        if entry.file_size > max_bytes:
            raise CheckpointRefused(
                f"{self.path}: entry {name} has {entry.file_size} bytes, at most {max_bytes} are read"
            )
        try:
            return self.archive.read(entry)
        except DAMAGED as error:
            raise CheckpointRefused(f"{self.path}: damaged zip, entry {name} ({error}); copy it again") from error


@contextmanager
def open_zip(path: Path) -> Iterator[ZipEntries]:
    """Open a zip file after checking its directory.

    Raises:
        CheckpointRefused: the directory is damaged, has too many or encrypted entries or a name twice, or promises more
            bytes than the file has.
    """
    try:
        archive = zipfile.ZipFile(path)
    except DAMAGED as error:
        raise CheckpointRefused(f"{path}: damaged zip ({error}); copy it again") from error
    with archive:
        yield ZipEntries(path, archive, _checked_directory(path, archive.infolist()))


def _checked_directory(path: Path, entries: list[zipfile.ZipInfo]) -> Mapping[str, zipfile.ZipInfo]:
    if len(entries) > _MAX_ENTRIES:
        raise CheckpointRefused(f"{path}: {len(entries)} zip entries, at most {_MAX_ENTRIES} are read")
    by_name = {entry.filename: entry for entry in entries}
    if len(by_name) < len(entries):
        raise CheckpointRefused(f"{path}: an entry of the zip has the name of another; torch never writes that")
    if sum(entry.compress_size for entry in entries) > path.stat().st_size:
        raise CheckpointRefused(f"{path}: zip entries promise more bytes than the file has; they overlap")
    for entry in entries:
        if entry.flag_bits & _ENCRYPTED:
            raise CheckpointRefused(f"{path}: entry {entry.filename} is encrypted; unpack it first")
        if entry.compress_type == zipfile.ZIP_STORED and entry.file_size != entry.compress_size:
            raise CheckpointRefused(f"{path}: damaged zip, entry {entry.filename} has two sizes; copy it again")
    return by_name
