"""Data types of the result store: results, reservations, its observer and clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Protocol

import msgspec

from service.saving.storage.contract import SUFFIXES, is_result_id


class SaveObserver(Protocol):
    """Receives every save, on the writer threads; must not block."""

    def saved(self, lag_s: float) -> None:
        """A result became durable `lag_s` seconds after `put`."""

    def save_failed(self) -> None:
        """An attempt to save failed; the result is kept and retried."""


class Unobserved:
    """A SaveObserver that ignores all saves."""

    def saved(self, lag_s: float) -> None:
        """Ignore it."""

    def save_failed(self) -> None:
        """Ignore it."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The clocks of the store, which tests replace."""

    now: Callable[[], float] = time.monotonic
    """Monotonic seconds, for delays and rates."""
    wall: Callable[[], datetime] = field(default=lambda: datetime.now(timezone.utc))
    """Wall-clock time, for the sidecar's `created`."""


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A finished result to be stored.

    id: 32 hexadecimal digits (uuid4().hex).
    sidecar: JSON values; the store adds id, created, media_type, bytes and sha256.
    on_saved: called on a writer thread when the result is durable, with the seconds since `put`.
    """

    id: str
    body: bytes
    media_type: str
    sidecar: dict[str, Any]
    on_saved: Callable[[float], None] | None = field(default=None, compare=False)

    def sidecar_without_digest(self, created: datetime) -> dict[str, Any]:
        """A copy of the sidecar with the store's fields, except the digest.

        Raises:
            ValueError: a bad id or media type.
            TypeError: a value is not JSON.
        """
        if not is_result_id(self.id) or self.media_type not in SUFFIXES:
            raise ValueError(f"cannot store {self.id!r} of type {self.media_type!r}")
        known = {"id": self.id, "created": created.isoformat(timespec="milliseconds")}
        facts = {**known, "media_type": self.media_type, "bytes": len(self.body)}
        whole: dict[str, Any] = msgspec.json.decode(msgspec.json.encode({**self.sidecar, **facts}))
        return whole


class Reservation:
    """Reserved space in the spool for one result; used by `put`, or given back by `release` or at the end of `with`."""

    def __init__(self, estimate: int, release: Callable[[Reservation], None]) -> None:
        self.estimate = estimate
        self.open = True
        """Whether it is neither used nor given back; changed only under the store's lock."""
        self._release = release

    def release(self) -> None:
        """Give the space back; does nothing if it was used or given back already."""
        self._release(self)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
