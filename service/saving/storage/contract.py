"""Where results last: one small contract, kept by a local disk and by S3-compatible storage.

A result is two objects under one shard, ID = 32 hexadecimal digits, `ab` = the first two: its image `ab/ID.png` and its
JSON sidecar `ab/ID.json`. The image is written before its sidecar and deleted after it, so that a sidecar that can be
seen has its whole image beside it.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from service.core.errors import NotReady, ServiceError

SUFFIXES = {"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp"}
_RESULT_ID = re.compile(r"[0-9a-f]{32}")
_OBJECT = re.compile(r"([0-9a-f]{2})/\1[0-9a-f]{30}\.(json|png|jpg|webp)")


def is_result_id(text: str) -> bool:
    """Whether `text` is 32 hexadecimal digits (uuid4().hex); nothing else ever becomes part of a path."""
    return _RESULT_ID.fullmatch(text) is not None


def sidecar_file(sidecar: dict[str, Any]) -> bytes:
    """A sidecar as JSON that a person can read, laid out by msgspec: json takes 0.1 ms for it before CPython 3.14."""
    return msgspec.json.format(msgspec.json.encode(sidecar), indent=1)


@dataclass(frozen=True, slots=True)
class Kept:
    """One object in storage, as a listing tells of it."""

    name: str
    """`ab/ID.SUFFIX`."""
    size: int
    modified_at: float
    """Seconds since the epoch."""

    @property
    def is_ours(self) -> bool:
        """Whether it is part of a result: a bucket, or a folder, may hold what others put there."""
        return _OBJECT.fullmatch(self.name) is not None

    @property
    def result_id(self) -> str:
        return self.name[3:].partition(".")[0]


class Storage(ABC):
    """Keeps results. All methods block; all are thread-safe."""

    @abstractmethod
    def write(self, body: bytes, sidecar: dict[str, Any]) -> None:
        """Make a result durable. Doing it again, after a failure or a crash, is allowed.

        Args:
            body: the encoded image.
            sidecar: with at least `id` and `media_type`.

        Raises:
            OSError: it is full, failing or not reachable; nothing half written can be seen.
        """

    @property
    def most_at_once(self) -> int:
        """So many results are handed to one `write_all` at most."""
        return 1

    @property
    def on_this_disk(self) -> bool:
        """Whether it is on the disk that the spool is on: what it does not take, the spool will not take for long."""
        return False

    def write_all(self, results: Sequence[tuple[bytes, dict[str, Any]]]) -> None:
        """Make results durable, each with its sidecar; as `write`, and after an error any of them may be, or not."""
        for body, sidecar in results:
            self.write(body, sidecar)

    @abstractmethod
    def entries(self) -> Iterator[Kept]:
        """Every image and sidecar, in any order, and what others put there; what changes meanwhile may be missed.

        Raises:
            OSError: it cannot be listed now.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove one object of `entries`; one that is gone is no error.

        Raises:
            OSError: it cannot be removed now.
        """

    @abstractmethod
    def load(self, name: str) -> bytes | None:
        """The bytes of one object, or None where it does not exist.

        Raises:
            OSError: it exists, or may exist, and cannot be read now.
        """

    def read(self, result_id: str) -> tuple[bytes, str] | None:
        """The image and its media type, or None where there is no such result.

        Raises:
            NotReady: code `storage_unavailable`: it cannot be read now.
            ServiceError: it is damaged.
        """
        sidecar = self.read_sidecar(result_id)
        if sidecar is None:
            return None
        media_type: str = sidecar["media_type"]
        body = self._load(result_id, SUFFIXES[media_type])
        return None if body is None else (body, media_type)

    def read_sidecar(self, result_id: str) -> dict[str, Any] | None:
        """The sidecar, or None where there is no such result.

        Raises:
            NotReady: code `storage_unavailable`: it cannot be read now.
            ServiceError: it is damaged.
        """
        text = self._load(result_id, ".json")
        return None if text is None else parsed_sidecar(text, result_id)

    def _load(self, result_id: str, suffix: str) -> bytes | None:
        try:
            return self.load(object_name(result_id, suffix))
        except OSError as error:
            raise unreadable(result_id, error) from error


def unreadable(result_id: str, error: OSError) -> NotReady:
    """What is raised where a result is there, or may be, and cannot be read now."""
    why = f"result {result_id} cannot be read ({error.strerror or error}); try again later"
    return NotReady(why, code="storage_unavailable")


def object_name(result_id: str, suffix: str) -> str:
    """`ab/ID.SUFFIX`.

    Raises:
        ValueError: it is no result id.
    """
    if not is_result_id(result_id):
        raise ValueError(f"{result_id!r} is no result id: give 32 hexadecimal digits, as of uuid4().hex")
    return f"{result_id[:2]}/{result_id}{suffix}"


def parsed_sidecar(text: bytes, result_id: str) -> dict[str, Any]:
    """The JSON of a sidecar.

    Raises:
        ServiceError: it is not what was written.
    """
    damaged = f"the sidecar of result {result_id} is damaged; ask for the image again"
    try:
        sidecar: Any = json.loads(text)
        json.dumps(sidecar, ensure_ascii=False, allow_nan=False).encode()  # else it could not be sent either
    except (ValueError, RecursionError) as error:
        raise ServiceError(damaged) from error
    if not isinstance(sidecar, dict) or sidecar.get("media_type") not in list(SUFFIXES):
        raise ServiceError(damaged)
    return sidecar
