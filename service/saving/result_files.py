"""Results on disk: `ab/ID.png` and its sidecar `ab/ID.json`, ID = 32 hexadecimal digits, `ab` = the first two.

A file is written under `.incoming`, synced, and only then renamed to its place, the image before its sidecar, with the
directory synced after each: after a crash at any point a sidecar that can be seen has its whole image beside it.
`.incoming` is one folder in the same file system, so that a start finds what a crashed run left without a look
through every result.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from service.errors import ServiceError
from service.settings import SettingsInvalid

INCOMING = ".incoming"
SUFFIXES = {"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp"}
_RESULT_ID = re.compile(r"[0-9a-f]{32}")


def is_result_id(text: str) -> bool:
    """Whether `text` is 32 hexadecimal digits (uuid4().hex); nothing else ever becomes part of a path."""
    return _RESULT_ID.fullmatch(text) is not None


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


class ResultFiles:
    """Writes and reads results under one directory. All methods block on the disk; all are thread-safe."""

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
        """Make a result durable. Doing it again, after a failure or a crash, is allowed.

        Args:
            body: the encoded image.
            sidecar: with at least `id` and `media_type`.

        Raises:
            OSError: the disk is full or failing; nothing half written can be seen.
        """
        result_id: str = sidecar["id"]
        shard = self._shard(result_id)
        try:
            self._make_durable(shard)
            self._publish(body, shard / (result_id + SUFFIXES[sidecar["media_type"]]))
            self._publish(json.dumps(sidecar, indent=1).encode(), shard / f"{result_id}.json")
        except OSError:
            self._durable_shards.discard(shard.name)  # it may have been deleted under us: look again
            raise

    def read(self, result_id: str) -> tuple[bytes, str] | None:
        """The image and its media type, or None where there is no such result.

        Raises:
            ServiceError: it is there and cannot be read.
        """
        sidecar = self.read_sidecar(result_id)
        if sidecar is None:
            return None
        media_type: str = sidecar["media_type"]
        body = self._read(result_id, SUFFIXES[media_type])
        return None if body is None else (body, media_type)

    def read_sidecar(self, result_id: str) -> dict[str, Any] | None:
        """The sidecar, or None where there is no such result.

        Raises:
            ServiceError: it is there and cannot be read.
        """
        text = self._read(result_id, ".json")
        if text is None:
            return None
        damaged = f"the sidecar of result {result_id} is damaged; ask for the image again"
        try:
            sidecar: Any = json.loads(text)
            json.dumps(sidecar, ensure_ascii=False, allow_nan=False).encode()  # else it could not be sent either
        except (ValueError, RecursionError) as error:
            raise ServiceError(damaged) from error
        if not isinstance(sidecar, dict) or sidecar.get("media_type") not in list(SUFFIXES):
            raise ServiceError(damaged)
        return sidecar

    def _shard(self, result_id: str) -> Path:
        if not is_result_id(result_id):
            raise ValueError(f"{result_id!r} is no result id: give 32 hexadecimal digits, as of uuid4().hex")
        return self._directory / result_id[:2]

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

    def _read(self, result_id: str, suffix: str) -> bytes | None:
        path = self._shard(result_id) / (result_id + suffix)
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ServiceError(
                f"result {result_id} cannot be read ({error.strerror or error}); try again later"
            ) from error
