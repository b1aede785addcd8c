"""Stored responses to repeated requests: `.replies/ab/NAME`, a line of JSON (status, headers), then the body.

All methods block. Files are renamed into place when complete, but not synced: they survive a killed process.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from service.saving.local_disk.disk import Disk


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """The response to a request. headers: names in lower case, and values, in their order."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    result_ids: tuple[str, ...] = ()
    """The stored results that it contains."""

    @property
    def deleted(self) -> bool:
        """Whether it takes the place of a response with a result that was deleted since."""
        return self.status == _GONE


_GONE = 410
"""Status of the note."""


class KeptResponses:
    """Responses under one directory, by name, a hexadecimal digest."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self._directory = directory / ".replies"
        self._disk = disk or Disk()

    def keep(self, name: str, response: KeptResponse) -> None:
        """Store a response.

        Raises:
            OSError: the disk is full or failing; the partial file is removed.
        """
        path = self._path(name)
        head = json.dumps({"status": response.status, "headers": response.headers, "results": response.result_ids})
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
        """Return the response; None if it does not exist or cannot be read."""
        try:
            line, _, body = self._path(name).read_bytes().partition(b"\n")
            head = json.loads(line)
            headers = tuple((str(header), str(value)) for header, value in head["headers"])
            return KeptResponse(int(head["status"]), headers, body, tuple(map(str, head.get("results", ()))))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    def replace_deleted(self, name: str) -> None:
        """Replace a response with a deleted result, if there is one, by a note that says so.

        Raises:
            OSError: the disk is failing; the response is removed even if it is full.
        """
        if self._path(name).exists():
            with suppress(OSError):  # a full disk: then the key counts as new
                self.keep(name, KeptResponse(_GONE, (), b""))
                return
            self.drop(name)

    def drop(self, name: str) -> None:
        """Remove the response of an expired key."""
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._directory / name[:2] / name
