"""Results on disk: `ab/ID.png` and its sidecar `ab/ID.json`, ID = 32 hexadecimal digits, `ab` = the first two.

A file is written under `.incoming`, synced, and only then renamed to its place, the image before its sidecar, with the
directory synced after each: after a crash at any point a sidecar that can be seen has its whole image beside it.
`.incoming` is one folder in the same file system, so that a start finds what a crashed run left without a look
through every result.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from service.saving.storage import SUFFIXES, Kept, Storage, object_name, sidecar_file
from service.settings import SettingsInvalid

INCOMING = ".incoming"


class Disk:
    """The three effects on the file system; a test can record them, or make one fail."""

    def write(self, path: Path, data: bytes) -> None:
        """Write a whole file and wait until its bytes are on the device."""
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def rename(self, source: Path, target: Path) -> None:
        """Move a file over `target`, atomically."""
        source.replace(target)

    def sync_directory(self, path: Path) -> None:
        """Wait until the directory's entries are on the device."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class ResultFiles(Storage):
    """Results under one directory."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self._directory = directory
        self._incoming = directory / INCOMING
        self._disk = disk or Disk()
        self._durable_shards: set[str] = set()

    def prepare(self) -> None:
        """Make the directory, try a write in it, and remove what a crashed run left half written.

        Another process that shares the directory may lose a file that it is writing; its store writes it again.

        Raises:
            SettingsInvalid: the directory cannot be made or written to.
        """
        probe = self._incoming / "probe"
        try:
            self._incoming.mkdir(parents=True, exist_ok=True)
            for leftover in self._incoming.iterdir():
                leftover.unlink(missing_ok=True)
            self._disk.write(probe, b"")
            probe.unlink(missing_ok=True)
        except OSError as error:
            raise SettingsInvalid(
                f"results_dir {self._directory} cannot be written to ({error.strerror or error}); "
                "choose another with --results-dir or RETOUCH_RESULTS_DIR"
            ) from error

    def write(self, body: bytes, sidecar: dict[str, Any]) -> None:
        """See `Storage`."""
        result_id: str = sidecar["id"]
        image = self._directory / object_name(result_id, SUFFIXES[sidecar["media_type"]])
        shard = image.parent
        try:
            self._make_durable(shard)
            self._publish(body, image)
            self._publish(sidecar_file(sidecar), image.with_suffix(".json"))
        except OSError:
            self._durable_shards.discard(shard.name)  # it may have been deleted under us: look again
            raise

    def entries(self) -> Iterator[Kept]:
        """See `Storage`."""
        for shard in self._directory.glob("[0-9a-f][0-9a-f]"):
            with os.scandir(shard) as files:
                for file in files:
                    with suppress(FileNotFoundError):  # deleted since it was listed
                        stat = file.stat()
                        yield Kept(f"{shard.name}/{file.name}", stat.st_size, stat.st_mtime)

    def delete(self, name: str) -> None:
        """See `Storage`."""
        (self._directory / name).unlink(missing_ok=True)

    def load(self, name: str) -> bytes | None:
        """See `Storage`."""
        try:
            return (self._directory / name).read_bytes()
        except FileNotFoundError:
            return None

    def _make_durable(self, shard: Path) -> None:
        self._incoming.mkdir(parents=True, exist_ok=True)
        if shard.name not in self._durable_shards:
            shard.mkdir(exist_ok=True)
            self._disk.sync_directory(self._directory)
            self._durable_shards.add(shard.name)

    def _publish(self, data: bytes, target: Path) -> None:
        temporary = self._incoming / target.name
        try:
            self._disk.write(temporary, data)
            self._disk.rename(temporary, target)
        except OSError:
            with suppress(OSError):  # the first error is the one to report
                temporary.unlink(missing_ok=True)
            raise
        self._disk.sync_directory(target.parent)
