"""Interface of durable storage, implemented for a local disk and for S3.

A result is two objects: its image `ab/ID.png` and its JSON sidecar `ab/ID.json`, where ID has 32 hexadecimal digits and
the shard `ab` is the first two. The image is written before its sidecar and deleted after it, so that a sidecar always
has its complete image.
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
    """Return whether `text` is 32 hexadecimal digits (uuid4().hex); nothing else may become part of a path."""
    return _RESULT_ID.fullmatch(text) is not None


def encode_sidecar(sidecar: dict[str, Any]) -> bytes:
    """Encode a sidecar as indented JSON; with msgspec, as the json module takes 0.1 ms before CPython 3.14."""
    return msgspec.json.format(msgspec.json.encode(sidecar), indent=1)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object in the storage, as listed."""

    name: str
    """`ab/ID.SUFFIX`."""
    size: int
    modified_at: float
    """Seconds since the epoch."""

    @property
    def is_ours(self) -> bool:
        """Whether the object is part of a result; a bucket or folder may hold other objects, too."""
        return _OBJECT.fullmatch(self.name) is not None

    @property
    def result_id(self) -> str:
        return self.name[3:].partition(".")[0]


class Storage(ABC):
    """Durable storage of results. All methods block; all are thread-safe."""

    @abstractmethod
    def write(self, body: bytes, sidecar: dict[str, Any]) -> None:
        """Make a result durable. May be repeated after a failure or a crash.

        Args:
            body: the encoded image.
            sidecar: the sidecar, with at least `id` and `media_type`.

        Raises:
            OSError: the storage is full, failing or not reachable; no part of the result is visible.
        """

    @property
    def max_group_size(self) -> int:
        """Largest number of results for one `write_all`."""
        return 1

    @property
    def shares_spool_disk(self) -> bool:
        """Whether it is on the spool's disk, so that its failures are also the spool's."""
        return False

    def write_all(self, results: Sequence[tuple[bytes, dict[str, Any]]]) -> None:
        """Make several results durable; after an error, each may be stored or not. Raises as `write` does."""
        for body, sidecar in results:
            self.write(body, sidecar)

    @abstractmethod
    def entries(self) -> Iterator[StoredObject]:
        """List all objects, in any order, including those of no result; concurrent changes may be missed.

        Raises:
            OSError: the storage cannot be listed now.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete one object; a missing object is not an error.

        Raises:
            OSError: the object cannot be deleted now.
        """

    def remove(self, result_id: str) -> None:
        """Delete a result, whole or not: its sidecar first, so that a sidecar always has its image.

        Raises:
            OSError: a part cannot be deleted now.
        """
        for suffix in (".json", *SUFFIXES.values()):
            self.delete(object_name(result_id, suffix))

    @abstractmethod
    def load(self, name: str) -> bytes | None:
        """Return the bytes of one object; None if it does not exist.

        Raises:
            OSError: the object cannot be read now.
        """

    def read(self, result_id: str) -> tuple[bytes, str] | None:
        """Return the image and its media type; None if there is no such result.

        Raises:
            NotReady: code `storage_unavailable`: the result cannot be read now.
            ServiceError: the sidecar is damaged.
        """
        sidecar = self.read_sidecar(result_id)
        if sidecar is None:
            return None
        media_type: str = sidecar["media_type"]
        body = self._load(result_id, SUFFIXES[media_type])
        return None if body is None else (body, media_type)

    def read_sidecar(self, result_id: str) -> dict[str, Any] | None:
        """Return the sidecar; None if there is no such result.

        Raises:
            NotReady: code `storage_unavailable`: the sidecar cannot be read now.
            ServiceError: the sidecar is damaged.
        """
        text = self._load(result_id, ".json")
        return None if text is None else parse_sidecar(text, result_id)

    def _load(self, result_id: str, suffix: str) -> bytes | None:
        try:
            return self.load(object_name(result_id, suffix))
        except OSError as error:
            raise unreadable_error(result_id, error) from error


def unreadable_error(result_id: str, error: OSError) -> NotReady:
    """Return the error for a result that cannot be read now."""
    why = f"result {result_id} cannot be read ({error.strerror or error}); try again later"
    return NotReady(why, code="storage_unavailable")


def object_name(result_id: str, suffix: str) -> str:
    """Return the name of an object: `ab/ID.SUFFIX`.

    Raises:
        ValueError: the id is not a result id.
    """
    if not is_result_id(result_id):
        raise ValueError(f"{result_id!r} is not a result id: give 32 hexadecimal digits, such as uuid4().hex")
    return f"{result_id[:2]}/{result_id}{suffix}"


def parse_sidecar(text: bytes, result_id: str) -> dict[str, Any]:
    """Parse a sidecar.

    Raises:
        ServiceError: the sidecar is damaged.
    """
    damaged = f"the sidecar of result {result_id} is damaged; ask for the image again"
    try:
        sidecar: Any = json.loads(text)
        json.dumps(sidecar, ensure_ascii=False, allow_nan=False).encode()  # fails if it could not be sent as JSON
    except (ValueError, RecursionError) as error:
        raise ServiceError(damaged) from error
    if not isinstance(sidecar, dict) or sidecar.get("media_type") not in list(SUFFIXES):
        raise ServiceError(damaged)
    return sidecar
