"""Brings the models folder up to date with the bucket: one round after another, in one process of a host."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import structlog

from engines.errors import RetouchError
from engines.repository.listing import VersionKey
from service.core.errors import NotReady
from service.remote_models.agreement import Agreement
from service.remote_models.bucket import ModelBucket, RemoteVersion
from service.remote_models.local_folder import LocalFolder

_log = structlog.get_logger(__name__)
_FETCH_AGAIN_S = 60.0
"""Pause before a version that was refused is fetched again: it may be large."""


@dataclass(slots=True)
class Follower:
    """Fetches, installs and removes versions. Whatever fails, those that are installed stay. Its methods block."""

    bucket: ModelBucket
    folder: LocalFolder
    agreement: Agreement
    clock: Callable[[], float]
    """Monotonic, in seconds."""
    _failing_since: float | None = None
    _refused: dict[str, float] = field(default_factory=dict)
    """Versions that were refused, and when."""
    _warned: set[str] = field(default_factory=set)

    @property
    def failing_s(self) -> float:
        """How long the bucket could not be read, or its versions not be kept, in seconds; 0 if all is well."""
        since = self._failing_since
        return 0.0 if since is None else self.clock() - since

    def follow(self) -> None:
        """Do one round, unless another process of this host does them."""
        try:
            with self.folder.held_alone() as alone:
                if alone:
                    self._round()
        except (OSError, NotReady) as error:
            if self._failing_since is None:
                self._failing_since = self.clock()
                _log.warning("models cannot be fetched; those that are here are served", error=str(error))
            return
        if self._failing_since is not None:
            _log.info("models can be fetched again", after_s=round(self.failing_s, 1))
            self._failing_since = None

    def _round(self) -> None:
        there = self.bucket.versions()
        installed = self.folder.installed()
        wanted = [version for version in there.values() if version and self._is_new(version, installed)]
        for key in sorted(key for key, version in there.items() if version is None):
            self._warn_once(f"{key}: its files.json is damaged; push another version")
        staged = [version for version in wanted if self.folder.is_staged(version) or self._fetch(version)]
        self.folder.clear_staged({str(version) for version in staged})
        held = [version for version in there.values() if version and installed.get(version.key) == version.digest]
        agreed = self.agreement.agreed([str(version) for version in (*staged, *held)])
        for version in staged:
            if str(version) in agreed:
                self.folder.install(version)
                _log.info("model fetched", model=str(version.key))
        self._remove_withdrawn(there, installed)

    def _is_new(self, version: RemoteVersion, installed: dict[VersionKey, str | None]) -> bool:
        if version.key not in installed:
            return True
        if installed[version.key] != version.digest:
            self._warn_once(f"{version.key}: this host has other files of that version, which it keeps")
        return False

    def _fetch(self, version: RemoteVersion) -> bool:
        tried_at = self._refused.get(str(version))
        if tried_at is not None and self.clock() - tried_at < _FETCH_AGAIN_S:
            return False
        try:
            self.folder.stage(version, partial(self.bucket.fetch, version))
        except RetouchError as error:
            self._refused[str(version)] = self.clock()
            self._warn_once(str(error))
            return False
        return True

    def _remove_withdrawn(self, there: Iterable[VersionKey], installed: dict[VersionKey, str | None]) -> None:
        left = set(there)
        withdrawn = sorted(key for key, digest in installed.items() if digest and key not in left)
        if withdrawn and not left:
            self._warn_once("the bucket has no version at all, so none is removed here: is its address right?")
            return
        for key in withdrawn:
            self.folder.remove(key)
            _log.info("model withdrawn", model=str(key))

    def _warn_once(self, reason: str) -> None:
        if reason not in self._warned:
            self._warned.add(reason)
            _log.warning("model of the bucket not served", reason=reason)
