"""The state of each version in the repository, and the lease counting that closes an engine after its last user."""

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
from engines.repository.listing import State, VersionFiles, VersionKey, VersionState

_RETRY_S = 30.0
"""Seconds until another try at a model that was refused for a reason outside its files, such as too little memory."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class ServedModel:
    """The model that a lease gives. While the lease is held, `engine` and `current.engine` stay open."""

    manifest: Manifest
    engine: Engine
    _replacement: ServedModel | None = field(default=None, init=False, repr=False)
    _lease_counter: LeaseCounter | None = field(default=None, init=False, repr=False)

    @property
    def current(self) -> ServedModel:
        """The model with the newest engine that replaced this one, or itself if none did; its manifest is the same."""
        served = self
        while served._replacement is not None:
            served = served._replacement
        return served

    def retain(self) -> bool:
        """Keep the engine open for a batch, independently of leases; returns False if it is closed already.

        Each True is matched by a `release`, once the batch is finished.
        """
        return self._lease_counter is None or self._lease_counter.retain()

    def release(self) -> None:
        """Undo one `retain`; may close the engine."""
        if self._lease_counter is not None:
            self._lease_counter.release()

    def set_lease_counter(self, lease_counter: LeaseCounter) -> None:
        """Set the counter that `retain` uses; without one the engine is never closed."""
        self._lease_counter = lease_counter

    def set_replacement(self, fresh: ServedModel) -> None:
        """Make `current` return another model; the caller keeps that model's engine open."""
        self._replacement = fresh


class LeaseCounter:
    """Counts the leases of one engine; after `retire` the last one to end closes it."""

    def __init__(self, served: ServedModel) -> None:
        self.served = served
        self._lock = Lock()
        self._leases = 0
        self._retired = False
        self._successor: LeaseCounter | None = None
        served.set_lease_counter(self)

    def acquire(self) -> bool:
        """Take a lease; returns False if the engine is retired."""
        with self._lock:
            if self._retired:
                return False
            self._leases += 1
            return True

    def retain(self) -> bool:
        """Take a lease even of a retired engine, if others still keep it open; returns False if it is closed."""
        with self._lock:
            if self._retired and self._leases == 0:
                return False
            self._leases += 1
            return True

    def release(self) -> None:
        """End a lease; may close the engine."""
        with self._lock:
            self._leases -= 1
            last = self._retired and self._leases == 0
        if last:
            self._close()
            if self._successor is not None:
                self._successor.release()

    def retire(self, successor: LeaseCounter | None = None) -> None:
        """Refuse new leases and close the engine, now or after its last lease; a second call does nothing.

        Args:
            successor: the replacement offered to the remaining leases; it is leased for as long as they last.
        """
        with self._lock:
            idle = not self._retired and self._leases == 0
            self._retired = True
            if successor is not None and self._leases and self._successor is None and successor.acquire():
                self._successor = successor
                self.served.set_replacement(successor.served)
        if idle:
            self._close()

    def _close(self) -> None:
        try:
            self.served.engine.close()
        except Exception:  # a failure to free memory must not fail a request that is already answered
            _log.exception("engine did not close", model=self.served.manifest.key)


@dataclass(frozen=True, slots=True)
class VersionChange:
    """A change that a scan made to a version: `loaded`, `refused` (see reason), `available` (unloaded) or `removed`."""

    kind: Literal["loaded", "refused", "available", "removed"]
    key: VersionKey
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """The status of one version for people; `manifest` is None if it cannot be read, `engine` if none is loaded."""

    name: str
    version: int
    state: State
    manifest: Manifest | None = None
    reason: str = ""
    engine: str | None = None
    precision: str | None = None
    device: str | None = None


@dataclass(slots=True)
class VersionEntry:
    """The repository's record of a version directory; all but `loading` is guarded by the repository's lock."""

    key: VersionKey
    version_files: VersionFiles
    state: State
    manifest: Manifest | None = None
    reason: str = ""
    lease_counter: LeaseCounter | None = None
    retry_at: float = math.inf
    """Time from which refused files may be tried again, in seconds since the epoch; infinity if only a change of the
    files can help."""
    loading: Lock = field(default_factory=Lock)
    """Held while an engine is being opened, so that two leases do not open two."""

    def accept(self, version_files: VersionFiles, manifest: Manifest) -> None:
        """Record that these files can be served."""
        self.version_files, self.manifest, self.reason, self.retry_at = version_files, manifest, "", math.inf

    def refuse(self, version_files: VersionFiles, error: RetouchError, now: float) -> bool:
        """Record why these files cannot be served; a loaded engine stays. Returns whether the refusal is new.

        After too little device memory or unreadable files the version is tried again later: more memory or other
        permissions do not show as a change of the files.
        """
        is_news = self.reason != str(error) or self.version_files.files != version_files.files
        self.version_files, self.reason = version_files, str(error)
        cause = error.__cause__
        unreadable = isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError)  # a new file is a change
        may_pass = isinstance(error, EngineOutOfMemory) or unreadable
        self.retry_at = now + _RETRY_S if may_pass else math.inf
        if self.lease_counter is None:
            self.state = "refused"
        return is_news

    def version_state(self, now: float) -> VersionState:
        """Return the state that decides whether to load the version; from `retry_at` on its files count as changed.

        They do also if the clock was set back since the refusal, which would otherwise last until it is there again.
        """
        waits = self.retry_at == math.inf or now < self.retry_at <= now + _RETRY_S
        return VersionState(self.state, self.version_files.files if waits else ())

    def status(self) -> ModelStatus:
        engine = self.lease_counter.served.engine if self.lease_counter else None
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
    name: str, version: int | None, entries: Mapping[VersionKey, VersionEntry], there: Iterable[VersionKey], root: Path
) -> str:
    """Explain why a model cannot be served: its refused versions, and the models that are available.

    Args:
        name: the requested model.
        version: the requested version; None for the newest.
        entries: the repository's record of each version.
        there: the versions in the folder.
        root: the folder.
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
