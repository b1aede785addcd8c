"""Results on disk: `ab/ID.png` and its sidecar `ab/ID.json`, where ID is 32 hexadecimal digits and `ab` the first two.

A file is written under `.incoming`, synced and then renamed; the image before its sidecar, with the directory synced
after each, so that even after a crash a sidecar always has its complete image. Several results are stored in two steps,
each followed by one sync of the whole file system: first all files are written and the images renamed, then the
sidecars are renamed. A power failure before the first sync may leave a damaged image, which does not count as a result
without a sidecar. `.incoming` is one folder, so that a start finds unfinished files without searching all results.
"""

from __future__ import annotations

import errno
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from service.core.settings import SettingsInvalid
from service.saving.local_disk.disk import Disk
from service.saving.local_disk.disk_state import INCOMING
from service.saving.local_disk.syncfs import changes_of, file_system_type, syncfs_is_reliable, syncfs_reports_errors
from service.saving.storage.contract import SUFFIXES, Storage, StoredObject, encode_sidecar, object_name


class _Files(NamedTuple):
    """The two files of a result, with final and temporary paths; as strings, because creating a Path takes 5 µs."""

    shard: str
    image: str
    sidecar: str
    new_image: str
    new_sidecar: str
    body: bytes
    text: bytes


class ResultFiles(Storage):
    """Results under one directory."""

    def __init__(self, directory: Path, disk: Disk | None = None, max_group_size: int = 64) -> None:
        self._directory = directory
        self._max_group_size = max_group_size
        self._incoming = directory / INCOMING
        self._disk = disk or Disk()
        self._durable_folders: set[str] = set()

    def prepare(self) -> None:
        """Create the directory, probe it with a write, and remove unfinished files of a crash.

        This may remove a file that another process is writing, which then tries again.

        Raises:
            SettingsInvalid: the directory cannot be created or written to.
        """
        probe = self._incoming / "probe"
        try:
            self._incoming.mkdir(parents=True, exist_ok=True)
            for leftover in self._incoming.iterdir():
                leftover.unlink(missing_ok=True)
            self._disk.write(probe, b"")
            probe.unlink(missing_ok=True)
        except OSError as error:
            raise unusable_folder(self._directory, error) from error

    def write(self, body: bytes, sidecar: dict[str, Any]) -> None:
        """See `Storage`."""
        result_id: str = sidecar["id"]
        image = self._directory / object_name(result_id, SUFFIXES[sidecar["media_type"]])
        shard = image.parent
        try:
            self._make_durable(shard)
            self._publish(body, image)
            self._publish(encode_sidecar(sidecar), image.with_suffix(".json"))
        except OSError:
            self._durable_folders.discard(shard.name)  # the folder may have been deleted: check again next time
            raise

    @property
    def max_group_size(self) -> int:
        """See `Storage`; 1 if a sync of the whole file system is not reliable here."""
        reported = syncfs_reports_errors(platform.system(), platform.release())
        return self._max_group_size if reported and syncfs_is_reliable(file_system_type(self._directory)) else 1

    @property
    def shares_spool_disk(self) -> bool:
        """See `Storage`."""
        return True

    def write_all(self, results: Sequence[tuple[bytes, dict[str, Any]]]) -> None:
        """See `Storage`.

        A single result is synced alone, which does not wait for unrelated writes. So is a result whose sidecar a killed
        process has already stored, because its image must be durable at all times.
        """
        group: list[_Files] = []
        for body, sidecar in results:
            files = self._files_of(body, sidecar)
            if len(results) < 2 or os.path.lexists(files.sidecar):
                self.write(body, sidecar)
            else:
                group.append(files)
        if group:
            self._publish_all(group)

    def entries(self) -> Iterator[StoredObject]:
        """See `Storage`."""
        for shard in self._directory.glob("[0-9a-f][0-9a-f]"):
            with os.scandir(shard) as files:
                for file in files:
                    with suppress(FileNotFoundError):  # deleted after it was listed
                        stat = file.stat()
                        yield StoredObject(f"{shard.name}/{file.name}", stat.st_size, stat.st_mtime)

    def delete(self, name: str) -> None:
        """See `Storage`."""
        (self._directory / name).unlink(missing_ok=True)

    def remove(self, result_id: str) -> None:
        """See `Storage`; also deletes the result's unfinished files from a killed process."""
        super().remove(result_id)
        for suffix in (".json", *SUFFIXES.values()):
            self._temporary_path(Path(result_id + suffix)).unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            self._disk.sync_directory(self._directory / result_id[:2])

    def load(self, name: str) -> bytes | None:
        """See `Storage`."""
        try:
            return (self._directory / name).read_bytes()
        except FileNotFoundError:
            return None

    def _make_durable(self, shard: Path) -> None:
        self._incoming.mkdir(parents=True, exist_ok=True)
        if shard.name not in self._durable_folders:
            shard.mkdir(exist_ok=True)
            self._disk.sync_directory(self._directory)
            self._durable_folders.add(shard.name)

    def _publish_all(self, group: Sequence[_Files]) -> None:
        durable, folders = False, {INCOMING, *(each.shard for each in group)}
        try:
            with changes_of(self._directory) as changes:
                self._make_folders(folders)
                for each in group:
                    self._disk.write_soon(each.new_image, each.body)
                    self._disk.rename(each.new_image, each.image)
                    self._disk.write_soon(each.new_sidecar, each.text)
                self._disk.sync_all(changes)
                durable = True
                for each in group:
                    self._disk.rename(each.new_sidecar, each.sidecar)
                self._disk.sync_all(changes)
        except OSError:
            self._durable_folders.clear()  # a folder may have been deleted: check again next time
            with suppress(OSError):  # the first error is the one to report
                for each in group:
                    for path in (each.new_image, each.new_sidecar, *(() if durable else (each.image,))):
                        Path(path).unlink(missing_ok=True)
            raise
        self._durable_folders |= folders

    def _make_folders(self, names: set[str]) -> None:
        """Create the folders that a group needs; its first sync makes them durable."""
        for name in names - self._durable_folders:
            (self._directory / name).mkdir(parents=True, exist_ok=True)

    def _files_of(self, body: bytes, sidecar: dict[str, Any]) -> _Files:
        name = object_name(sidecar["id"], suffix := SUFFIXES[sidecar["media_type"]])
        final = f"{self._directory}/{name.removesuffix(suffix)}"
        new = f"{self._incoming}/{sidecar['id']}"
        return _Files(
            name[:2], final + suffix, f"{final}.json", new + suffix, f"{new}.json", body, encode_sidecar(sidecar)
        )

    def _temporary_path(self, target: Path) -> Path:
        return self._incoming / target.name

    def _publish(self, data: bytes, target: Path) -> None:
        temporary = self._temporary_path(target)
        try:
            self._disk.write(temporary, data)
            self._disk.rename(temporary, target)
        except OSError:
            with suppress(OSError):  # the first error is the one to report
                temporary.unlink(missing_ok=True)
            raise
        self._disk.sync_directory(target.parent)


def unusable_folder(directory: Path, error: OSError) -> SettingsInvalid:
    """Return the error for a results folder that cannot be made or used."""
    other = "choose another with --results-dir or RETOUCH_RESULTS_DIR"
    if not os.path.lexists(directory):
        parent = next(path for path in directory.absolute().parents if path.exists())
        may_be_made = error.errno in (errno.EACCES, errno.EPERM)
        advice = f"let the user of this server write {parent}, or {other}" if may_be_made else other
        reason = "" if error.errno == errno.ENOENT else f" ({error.strerror or error})"  # as of /proc, which exists
        return SettingsInvalid(
            f"results_dir {directory} cannot be made: {parent} takes no new folder{reason}; {advice}"
        )
    if not directory.is_dir():
        return SettingsInvalid(f"results_dir {directory} is not a folder; {other}")
    at = f": {error.filename}" if error.filename else ""
    return SettingsInvalid(
        f"results_dir {directory} cannot be written to ({error.strerror or error}{at}); let the user of this server "
        f"write it and the folders in it, or {other}"
    )
