"""Keeps the models folder in line with the bucket, in rounds; on each host, one process at a time does so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
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
_RETRY_INTERVAL_S = 60.0
"""Pause in seconds before a failed fetch is repeated, as versions may be large."""

Remote = Mapping[VersionKey, RemoteVersion | None]
Installed = Mapping[VersionKey, str | None]


@dataclass(slots=True)
class Follower:
    """Fetches, installs and removes versions; a failure of one does not affect the others. All methods block."""

    bucket: ModelBucket
    folder: LocalFolder
    agreement: Agreement
    clock: Callable[[], float]
    """Monotonic clock, in seconds."""
    _failing_since: float | None = None
    _problem: Exception | None = None
    """The first error of this round."""
    _paused: dict[str, tuple[float, OSError | None]] = field(default_factory=dict)
    """Versions that could not be fetched: time of the attempt, and the OSError; None if the version was refused."""
    _logged: set[str] = field(default_factory=set)

    @property
    def failing_s(self) -> float:
        """Seconds for which rounds have failed to read the bucket or to store versions; 0 after a successful one."""
        since = self._failing_since
        return 0.0 if since is None else self.clock() - since

    def follow(self) -> None:
        """Do one round, unless another process of this host is doing one. Raises nothing."""
        self._problem = None
        try:
            with self.folder.lock() as locked:
                if locked:
                    self._round()
        except (OSError, NotReady) as error:
            self._problem = error
        except Exception as error:  # a bug: it is logged, and the next round tries again
            self._problem = error
            if self._failing_since is None:
                _log.exception("comparing the models with the bucket failed; retrying")
        self._log_state_change()

    def _log_state_change(self) -> None:
        if self._problem is not None and self._failing_since is None:
            self._failing_since = self.clock()
            _log.warning("models cannot be fetched; the local ones are served", error=str(self._problem))
        elif self._problem is None and self._failing_since is not None:
            _log.info("models can be fetched again", after_s=round(self.failing_s, 1))
            self._failing_since = None

    def _round(self) -> None:
        remote = self.bucket.versions()
        if self.bucket.read_error is not None:
            self._problem = self.bucket.read_error
        for key in sorted(key for key, version in remote.items() if version is None):
            self._warn_once(
                f"{key}: its files.json is damaged or cannot be read; if this persists, push another version"
            )
        installed = self.folder.installed()
        self._remove_withdrawn(remote, installed)
        wanted = [version for version in remote.values() if version and self._is_new(version, installed)]
        with self._recording_errors("what is no longer in the bucket"):
            self.folder.clear_staged({str(version) for version in wanted})
        self._install_agreed(remote)  # also announces this host to the others, before fetches that may take long
        for version in _newest_first(wanted):
            if not self.folder.is_staged(version) and self._fetch(version):
                self._install_agreed(remote)

    def _is_new(self, version: RemoteVersion, installed: Installed) -> bool:
        digest = installed.get(version.key, "")
        if digest is None:
            self._warn_once(f"{version.key}: this host has other files of that version, which it keeps")
        return digest is not None and digest != version.digest

    def _fetch(self, version: RemoteVersion) -> bool:
        tried_at, problem = self._paused.get(str(version), (None, None))
        if tried_at is not None and self.clock() - tried_at < _RETRY_INTERVAL_S:
            self._problem = self._problem or problem
            return False
        try:
            self.folder.stage(version, partial(self.bucket.fetch, version))
        except (RetouchError, RecursionError) as error:
            self._paused[str(version)] = (self.clock(), None)
            self._warn_once(f"{version.key}: {error}")
            return False
        except OSError as error:
            if self.bucket.is_closed:
                raise
            self._paused[str(version)] = (self.clock(), error)
            self._problem = self._problem or error
            self._warn_once(f"{version.key}: {error}")
            return False
        return True

    def _install_agreed(self, remote: Remote) -> None:
        """Announce this host's versions to the other hosts, and install the fetched ones that may be served."""
        installed = self.folder.installed()
        current = [version for version in remote.values() if version and installed.get(version.key) == version.digest]
        staged = [version for version in remote.values() if version and self.folder.is_staged(version)]
        try:
            agreed = self.agreement.agreed([str(version) for version in (*staged, *current)])
        except NotReady as error:
            self._problem = self._problem or error
            return
        for version in _newest_first(staged):
            if str(version) not in agreed:
                if self._is_not_logged(f"waits {version}"):
                    _log.info("model fetched; it waits until the other hosts have it", model=str(version.key))
                continue
            with self._recording_errors(version.key):
                self.folder.install(version)
                _log.info("model fetched", model=str(version.key))

    def _remove_withdrawn(self, remote: Remote, installed: Installed) -> None:
        """Remove versions that the bucket no longer has, or has with other files.

        If the bucket still has versions of a model but none is installed, the newest withdrawn one stays for now.
        """
        withdrawn = {key for key, digest in installed.items() if digest and _is_withdrawn(key, digest, remote)}
        if withdrawn and not remote:
            self._warn_once("the bucket has no version at all, so none is removed here: is its address right?")
            return
        left = {key.name for key in installed if key not in withdrawn}
        expected = {key.name for key in remote} - left
        kept = {
            max(key for key in withdrawn if key.name == name) for name in expected & {key.name for key in withdrawn}
        }
        for key in sorted(kept):
            self._warn_once(f"{key} was withdrawn, and is served until another version of {key.name} is available")
        for key in sorted(withdrawn - kept):
            with self._recording_errors(key):
                self.folder.remove(key)
                _log.info("model withdrawn", model=str(key))

    @contextmanager
    def _recording_errors(self, what: object) -> Iterator[None]:
        """Record an OSError raised in the block, and continue after the block."""
        try:
            yield
        except OSError as error:
            self._problem = self._problem or error
            self._warn_once(f"{what}: {error}")

    def _warn_once(self, reason: str) -> None:
        if self._is_not_logged(reason):
            _log.warning("model of the bucket not served", reason=reason)

    def _is_not_logged(self, text: str) -> bool:
        unsaid = text not in self._logged
        self._logged.add(text)
        return unsaid


def _is_withdrawn(key: VersionKey, digest: str, remote: Remote) -> bool:
    """Return whether the bucket no longer has the version, or has other files under its number."""
    version = remote.get(key)
    return key not in remote or (version is not None and version.digest != digest)


def _newest_first(versions: Iterable[RemoteVersion]) -> list[RemoteVersion]:
    """Sort versions: first the newest version of each model, then the second newest of each, and so on."""
    ranks: Counter[str] = Counter()
    ranked = []
    for version in sorted(versions, key=lambda version: version.key, reverse=True):
        ranked.append((ranks[version.key.name], version))
        ranks[version.key.name] += 1
    return [version for _, version in sorted(ranked, key=lambda pair: pair[0])]
