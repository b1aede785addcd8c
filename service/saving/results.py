"""What is handed to the store of results, and what it hands out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Protocol

import msgspec

from service.saving.storage.contract import SUFFIXES, is_result_id


class SaveObserver(Protocol):
    """Told about every save, from the writer threads; must not block."""

    def saved(self, lag_s: float) -> None:
        """A result became durable `lag_s` seconds after `put`."""

    def save_failed(self) -> None:
        """One try failed; the result is kept and tried again."""


class Unobserved:
    """A SaveObserver for whom it may concern: nobody."""

    def saved(self, lag_s: float) -> None:
        """Nothing is done."""

    def save_failed(self) -> None:
        """Nothing is done."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Where time comes from."""

    now: Callable[[], float] = time.monotonic
    """Seconds, for lags and rates."""
    wall: Callable[[], datetime] = field(default=lambda: datetime.now(timezone.utc))
    """For the sidecar's `created`."""


@dataclass(frozen=True, slots=True)
class StoredResult:
    """A finished reply.

    id: 32 hexadecimal digits (uuid4().hex).
    sidecar: JSON values; the store adds id, created, media_type, bytes and sha256.
    on_saved: told, on the writer's thread, that it became durable, and how many seconds after `put`.
    """

    id: str
    body: bytes
    media_type: str
    sidecar: dict[str, Any]
    on_saved: Callable[[float], None] | None = field(default=None, compare=False)

    def whole_sidecar(self, created: datetime) -> dict[str, Any]:
        """With what the store knows but the digest; a copy, which nobody changes later.

        Raises:
            ValueError: a bad id or media type.
            TypeError: it is not JSON.
        """
        if not is_result_id(self.id) or self.media_type not in SUFFIXES:
            raise ValueError(f"cannot store {self.id!r} of type {self.media_type!r}")
        known = {"id": self.id, "created": created.isoformat(timespec="milliseconds")}
        facts = {**known, "media_type": self.media_type, "bytes": len(self.body)}
        whole: dict[str, Any] = msgspec.json.decode(msgspec.json.encode({**self.sidecar, **facts}))
        return whole


class Reservation:
    """Room promised in the spool; `put` uses it, `release` or leaving its `with` block gives an unused one back."""

    def __init__(self, estimate: int, release: Callable[[Reservation], None]) -> None:
        self.estimate = estimate
        self.open = True
        """Neither used nor given back; changed under the store's lock only."""
        self._release = release

    def release(self) -> None:
        """Give the room back; does nothing when it was used or given back already."""
        self._release(self)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
