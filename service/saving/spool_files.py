"""The spool on disk: a result is written here before it is promised, and leaves when it is durable where it lasts.

One file a result: a line of JSON (the sidecar, and the body's CRC-32), then the body. Writing it waits for no device:
what is in the system's page cache outlives the process, killed or not. `sync` makes it outlive the machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from service.saving.owners import Owner
from service.saving.storage import is_result_id

_log = structlog.get_logger(__name__)


class Spooled(NamedTuple):
    """A result in the spool."""

    body: bytes
    sidecar: dict[str, Any]

    def complete_sidecar(self) -> dict[str, Any]:
        """With the digest, which is taken behind the reply."""
        return {**self.sidecar, "sha256": hashlib.sha256(self.body).hexdigest()}


class SpoolFiles:
    """This process's part of the spool, and a look into those of the others. All methods block; all are thread-safe."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    def open(self) -> None:
        """Take a folder of one's own.

        Raises:
            OSError: it cannot be made.
        """
        self._owner.enter()

    def close(self) -> None:
        """Leave; what is left is inherited by the next process that looks."""
        self._owner.leave()

    def write(self, result_id: str, body: bytes, sidecar: dict[str, Any]) -> None:
        """Spool a result; in a new folder where somebody has removed this process's own.

        Raises:
            OSError: the disk is full or failing; nothing is left of it.
        """
        head = json.dumps({"sidecar": sidecar, "crc32": zlib.crc32(body)}).encode()
        try:
            self._write(result_id, [head, b"\n", body])
        except FileNotFoundError:
            self._owner.enter_again()
            self._write(result_id, [head, b"\n", body])

    def _write(self, result_id: str, pieces: list[bytes]) -> None:
        path = self._owner.folder / result_id
        try:
            with path.open("wb", buffering=0) as file:
                _write_whole(file.fileno(), pieces)
        except OSError:
            path.unlink(missing_ok=True)
            raise

    def read(self, result_id: str) -> Spooled | None:
        """A result that any process spooled; None where nobody did, or it has left the spool.

        Raises:
            OSError: it is there and cannot be read.
        """
        if (own := _load(self._owner.folder / result_id)) is not None:  # as a rule, and without a look round
            return own
        for folder in self._all():
            if (found := _load(folder / result_id)) is not None:
                return found
        return None

    def ids(self) -> set[str]:
        """Of all results that any process has spooled.

        Raises:
            OSError: a folder is there and cannot be listed.
        """
        found: set[str] = set()
        for folder in self._all():
            with suppress(FileNotFoundError):  # inherited and removed just now
                found.update(path.name for path in folder.iterdir() if is_result_id(path.name))
        return found

    def sync(self, result_id: str) -> None:
        """Wait until it is on the device; does nothing where it has left the spool.

        Raises:
            OSError: the disk is failing.
        """
        for path in (self._owner.folder / result_id, self._owner.folder):
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                return
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def remove(self, result_id: str) -> None:
        """It is durable elsewhere."""
        (self._owner.folder / result_id).unlink(missing_ok=True)

    def inherit(self) -> Iterator[tuple[str, Spooled]]:
        """Results that dead processes left, moved into this one's folder.

        A torn one was never promised: its process died while it wrote, before the reply. It is removed, and logged.

        Raises:
            OSError: one cannot be read or moved; the others stay for the next look.
        """
        for folder in self._owner.folders()[1:]:
            with self._owner.inherit(folder) as dead:
                if dead:
                    yield from self._moved(folder)

    def _all(self) -> Iterator[Path]:
        """The folders of all processes, twice: while a dead one's is inherited, a result may move past the first look.

        And again if folders came or went meanwhile.
        """
        folders = None
        while (now := self._owner.folders()) != folders:
            folders = now
            yield from (*folders, *folders)

    def _moved(self, folder: Path) -> Iterator[tuple[str, Spooled]]:
        for path in sorted(folder.iterdir()):
            if not is_result_id(path.name):
                continue
            found = _load(path)
            if found is None:
                _log.warning("a torn result was removed from the spool; it had not been promised", result=path.name)
                path.unlink(missing_ok=True)
            else:
                path.rename(self._owner.folder / path.name)
                yield path.name, found


def _load(path: Path) -> Spooled | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    line, _, body = data.partition(b"\n")
    try:
        head = json.loads(line)
        whole: bool = head["crc32"] == zlib.crc32(body)
        return Spooled(body, head["sidecar"]) if whole else None
    except (ValueError, KeyError, TypeError):
        return None


def _write_whole(descriptor: int, pieces: list[bytes]) -> None:
    """One system call as a rule; a full disk takes a part and fails on the rest."""
    views = [memoryview(piece) for piece in pieces]
    while views:
        written = os.writev(descriptor, views)
        while views and written >= len(views[0]):
            written -= len(views.pop(0))
        if views:
            views[0] = views[0][written:]
