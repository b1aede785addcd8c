"""Stored responses to requests with a key: `.replies/ab/NAME`, a line of JSON (status, headers, results) and the body.

All methods block. Files are renamed into place when complete but not synced: they survive the death of the process. A
power failure may cut one off, so the line has the length of the body.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from service.core.errors import NotReady
from service.repeats.idempotency_table import Claim
from service.saving.local_disk.disk import Disk
from service.saving.local_disk.own_folders import RESPONSES


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """The response to a request; `headers`: pairs of a lower-case name and a value, in order."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    result_ids: tuple[str, ...] = ()
    """Ids of the stored results in the response."""

    @property
    def deleted(self) -> bool:
        """Whether this stands for a response that was removed because one of its results was deleted."""
        return self.status == _GONE


_GONE = 410
DELETED = StoredResponse(_GONE, (), b"")
"""Marker in place of a response that was removed because one of its results was deleted."""


class ResponseFiles(Protocol):
    """Responses by claim, readable by every process that may repeat them. All methods block."""

    by_claim: ClassVar[bool]
    """Whether each claim has a file of its own; otherwise all claims on a key share one file."""

    def keep(self, claim: Claim, response: StoredResponse) -> None:
        """Store a response.

        Raises:
            OSError: this host's disk is full or failing; the partial response was removed.
            NotReady: code `storage_unavailable`: the hosts' shared storage cannot be written now.
        """

    def find(self, claim: Claim) -> StoredResponse | None:
        """Return the response; None if it does not exist or is damaged.

        Raises:
            NotReady: code `storage_unavailable`: the disk, or the hosts' shared storage, cannot be read now.
        """

    def replace_deleted(self, claim: Claim) -> None:
        """Replace a claim's response, if it exists, by the marker `DELETED`. Raises as `keep` does."""

    def drop(self, claim: Claim) -> None:
        """Remove the response of a removed claim; without `by_claim`, called only while the key is free.

        Raises:
            OSError: it cannot be removed now.
        """


class LocalResponseFiles:
    """Responses under one directory, by the name of their key, a hexadecimal digest."""

    by_claim: ClassVar[bool] = False

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self._directory = directory / RESPONSES
        self._disk = disk or Disk()

    def keep(self, claim: Claim, response: StoredResponse) -> None:
        """See `ResponseFiles`."""
        path, temporary = self._path(claim), self._unfinished(claim)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._disk.write_soon(temporary, encode_response(response))
            self._disk.rename(temporary, path)
        except OSError:
            with suppress(OSError):  # the first error is the one to report
                temporary.unlink(missing_ok=True)
            raise

    def find(self, claim: Claim) -> StoredResponse | None:
        """See `ResponseFiles`."""
        try:
            return decode_response(self._path(claim).read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:  # temporary, such as no file descriptor left: no reason to compute the request again
            message = (
                f"the answer to this Idempotency-Key cannot be read now ({error.strerror or error}); try again later"
            )
            raise NotReady(message, code="storage_unavailable") from error

    def replace_deleted(self, claim: Claim) -> None:
        """See `ResponseFiles`; if the disk is full, the response is removed. An unfinished file is removed, too."""
        self._unfinished(claim).unlink(missing_ok=True)
        if self._path(claim).exists():
            with suppress(OSError):  # the disk is full: without a response the key counts as new
                self.keep(claim, DELETED)
                return
            self.drop(claim)

    def drop(self, claim: Claim) -> None:
        """See `ResponseFiles`."""
        for path in (self._path(claim), self._unfinished(claim)):
            path.unlink(missing_ok=True)

    def _unfinished(self, claim: Claim) -> Path:
        return self._path(claim).with_suffix(".new")

    def _path(self, claim: Claim) -> Path:
        return self._directory / claim.name[:2] / claim.name


def encode_response(response: StoredResponse) -> bytes:
    """Encode a response as a line of JSON (status, headers, results, length of the body) and the body."""
    head = {"status": response.status, "headers": response.headers, "results": response.result_ids}
    head["bytes"] = len(response.body)
    return json.dumps(head).encode() + b"\n" + response.body


def decode_response(data: bytes) -> StoredResponse | None:
    """Decode a response from `encode_response`; None if it is damaged."""
    try:
        line, _, body = data.partition(b"\n")
        head = json.loads(line)
        if head.get("bytes", len(body)) != len(body):  # 0.2 wrote no length
            return None
        headers = tuple((str(header), str(value)) for header, value in head["headers"])
        return StoredResponse(int(head["status"]), headers, body, tuple(map(str, head.get("results", ()))))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
