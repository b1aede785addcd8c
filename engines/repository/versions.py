"""What the repository knows of a version, and a loaded engine that is closed by whoever lets go of it last."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Literal

import structlog

from engines.base import Engine
from engines.errors import EngineOutOfMemory, RetouchError
from engines.manifest import Manifest
from engines.repository.listing import Key, Known, Listed, State

_RETRY_S = 30.0
"""Until a model that had no room on the device is tried again: the room may be there by then."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class ServedModel:
    """What a lease gives. While it is held, `engine` stays open, and so does `current.engine`."""

    manifest: Manifest
    engine: Engine
    _replacement: ServedModel | None = field(default=None, init=False, repr=False)
    _holder: Holder | None = field(default=None, init=False, repr=False)

    @property
    def current(self) -> ServedModel:
        """The model with the engine that took this one's place, if one did: of the same manifest, never closed."""
        served = self
        while served._replacement is not None:
            served = served._replacement
        return served

    def retain(self) -> bool:
        """Hold the engine for a batch, whether or not those who lease it stay; False when it is closed already.

        Each True is matched by a `release`, when nothing computes with the engine any more.
        """
        return self._holder is None or self._holder.retain()

    def release(self) -> None:
        """Let go of the engine; may close it."""
        if self._holder is not None:
            self._holder.release()

    def held_by(self, holder: Holder) -> None:
        """Count those who `retain` there; a model that nobody holds is never closed."""
        self._holder = holder

    def replace_by(self, fresh: ServedModel) -> None:
        """Lead whoever asks for `current` to another; the caller sees to it that its engine stays open."""
        self._replacement = fresh


class Holder:
    """Counts the leases of one engine; after `retire` the last one closes it."""

    def __init__(self, served: ServedModel) -> None:
        self.served = served
        self._lock = Lock()
        self._leases = 0
        self._retired = False
        self._successor: Holder | None = None
        served.held_by(self)

    def acquire(self) -> bool:
        """Take a lease; False when the engine is retired already."""
        with self._lock:
            if self._retired:
                return False
            self._leases += 1
            return True

    def retain(self) -> bool:
        """Take a lease beside others, which a retired engine may have too; False when it is closed."""
        with self._lock:
            if self._retired and self._leases == 0:
                return False
            self._leases += 1
            return True

    def release(self) -> None:
        """Give a lease back; may close the engine."""
        with self._lock:
            self._leases -= 1
            last = self._retired and self._leases == 0
        if last:
            self._close()
            if self._successor is not None:
                self._successor.release()

    def retire(self, successor: Holder | None = None) -> None:
        """No more leases; closes the engine now or after the last one. Twice is allowed.

        Args:
            successor: what those who still have a lease may use instead: it is leased for as long as they have theirs.
        """
        with self._lock:
            idle = not self._retired and self._leases == 0
            self._retired = True
            if successor is not None and self._leases and self._successor is None and successor.acquire():
                self._successor = successor
                self.served.replace_by(successor.served)
        if idle:
            self._close()

    def _close(self) -> None:
        try:
            self.served.engine.close()
        except Exception:  # a runtime that fails to free must not fail a request that is already answered
            _log.exception("engine did not close", model=self.served.manifest.key)


@dataclass(frozen=True, slots=True)
class Change:
    """What a scan did to one version: `loaded`, `refused` (see reason), `available` (set aside), `removed`."""

    kind: Literal["loaded", "refused", "available", "removed"]
    key: Key
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """One version as people see it; `manifest` is None where it cannot be read, `engine` where none is loaded."""

    name: str
    version: int
    state: State
    manifest: Manifest | None = None
    reason: str = ""
    engine: str | None = None
    precision: str | None = None
    device: str | None = None


@dataclass(slots=True)
class Entry:
    """A version directory. All but `loading` changes under the repository's lock only."""

    key: Key
    listed: Listed
    state: State
    manifest: Manifest | None = None
    reason: str = ""
    holder: Holder | None = None
    retry_at: float = math.inf
    """When files that were refused may be tried again, by the repository's clock; never, if the fault is theirs."""
    loading: Lock = field(default_factory=Lock)
    """Held while an engine is being opened, so that two leases do not open two."""

    def accept(self, listed: Listed, manifest: Manifest) -> None:
        """Note that these files can be served."""
        self.listed, self.manifest, self.reason, self.retry_at = listed, manifest, "", math.inf

    def refuse(self, listed: Listed, error: RetouchError, now: float) -> None:
        """Note why these files cannot be served; a device without room is no fault of theirs. A loaded engine stays."""
        self.listed, self.reason = listed, str(error)
        self.retry_at = now + _RETRY_S if isinstance(error, EngineOutOfMemory) else math.inf
        if self.holder is None:
            self.state = "refused"

    def known(self, now: float) -> Known:
        """What decides whether to load it: once it may be tried again, it is as if its files were others."""
        return Known(self.state, self.listed.files if now < self.retry_at else ())

    def status(self) -> ModelStatus:
        engine = self.holder.served.engine if self.holder else None
        return ModelStatus(
            name=self.key.name,
            version=self.key.version,
            state=self.state,
            manifest=self.manifest,
            reason=self.reason,
            engine=engine.name if engine else None,
            precision=engine.precision if engine else None,
            device=engine.device if engine else None,
        )


def why_not_found(
    name: str, version: int | None, entries: Mapping[Key, Entry], there: Iterable[Key], root: Path
) -> str:
    """Why a request for this model gets none: what is refused of it, and which models there are.

    Args:
        name: the model that was asked for.
        version: the version that was asked for; None for the newest.
        entries: what the repository knows of each version.
        there: the versions in its folder.
        root: that folder.
    """
    asked = name if version is None else f"{name}/{version}"
    refused = [
        f"; {key} is refused: {entry.reason}"
        for key, entry in sorted(entries.items())
        if entry.state == "refused" and key.name == name and version in (None, key.version)
    ]
    broken = {key for key, entry in entries.items() if entry.state == "refused"}
    offered = ", ".join(map(str, sorted(set(there) - broken))) or f"none in {root.absolute()}"
    return f"no model {asked}; available: {offered}{''.join(refused)}"
