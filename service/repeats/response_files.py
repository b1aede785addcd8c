"""Responses on disk, to be sent again: `.replies/ab/NAME`, a line of JSON (status, headers), then the body.

All methods block. Renamed into place when whole; in the page cache, which a killed process does not take along.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from service.saving.local_disk.disk import Disk


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """What a request was answered with. headers: names in lower case, and values, in their order."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class KeptResponses:
    """Responses by name, a hexadecimal digest, under one directory."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self._directory = directory / ".replies"
        self._disk = disk or Disk()

    def keep(self, name: str, response: KeptResponse) -> None:
        """Write a response down.

        Raises:
            OSError: the disk is full or failing; nothing is left of it.
        """
        path = self._path(name)
        head = json.dumps({"status": response.status, "headers": response.headers})
        temporary = path.with_suffix(".new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._disk.write_soon(temporary, head.encode() + b"\n" + response.body)
            self._disk.rename(temporary, path)
        except OSError:
            with suppress(OSError):  # the first error is the one to report
                temporary.unlink(missing_ok=True)
            raise

    def find(self, name: str) -> KeptResponse | None:
        """The response, or None where it is not there or not readable."""
        try:
            line, _, body = self._path(name).read_bytes().partition(b"\n")
            head = json.loads(line)
            headers = tuple((str(header), str(value)) for header, value in head["headers"])
            return KeptResponse(int(head["status"]), headers, body)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def drop(self, name: str) -> None:
        """Its key has expired."""
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._directory / name[:2] / name
