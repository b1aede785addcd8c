"""Results as callers pass them to the store, with spool reservations, clocks and observers of saves."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Protocol

from service.saving.storage.contract import SUFFIXES, is_result_id


class SaveObserver(Protocol):
    """Counts saves; called on the writers' threads, which it must not block."""

    def saved(self, lag_s: float) -> None:
        """Count a result that became durable `lag_s` seconds after `put`."""

    def save_failed(self) -> None:
        """Count a failed attempt; its results are kept and retried."""


class Unobserved:
    """A SaveObserver that counts nothing."""

    def saved(self, lag_s: float) -> None:
        """Do nothing."""

    def save_failed(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The clocks of the store, which tests replace."""

    now: Callable[[], float] = time.monotonic
    """Monotonic seconds, for lags and rates."""
    wall: Callable[[], datetime] = field(default=lambda: datetime.now(timezone.utc))
    """Wall clock in UTC, for the sidecar's `created`."""


@dataclass(frozen=True, slots=True)
class StoredResult:
    """One encoded picture and its sidecar, ready to be saved.

    id: 32 hexadecimal digits (uuid4().hex).
    sidecar: JSON values; the store adds id, created, media_type, bytes and sha256.
    on_saved: called on a writer's thread when the result is durable, with the seconds since `put`.
    """

    id: str
    body: bytes
    media_type: str
    sidecar: dict[str, Any]
    on_saved: Callable[[float], None] | None = field(default=None, compare=False)

    def sidecar_without_digest(self, created: datetime) -> dict[str, Any]:
        """Return the sidecar with the values that the store adds, except the digest.

        Raises:
            ValueError: the id or the media type is invalid.
        """
        if not is_result_id(self.id) or self.media_type not in SUFFIXES:
            raise ValueError(f"cannot store {self.id!r} of type {self.media_type!r}")
        known = {"id": self.id, "created": created.isoformat(timespec="milliseconds")}
        return {**self.sidecar, **known, "media_type": self.media_type, "bytes": len(self.body)}


class SpoolReservation:
    """Reserved space in the spool, used by `put`; `release`, or the end of its `with` block, frees it if unused."""

    def __init__(self, estimate: int, release: Callable[[SpoolReservation], None]) -> None:
        self.estimate = estimate
        self.open = True
        """Whether it is neither used nor released; changed only under the backlog's lock."""
        self._release = release

    def release(self) -> None:
        """Free the space, unless it was already used or freed."""
        self._release(self)

    def __enter__(self) -> SpoolReservation:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
