"""The model repository: NAME/VERSION directories that can change without a restart.

`scan`, which a loader thread calls periodically, loads the newest working version of each model. `lease` hands engines
out and counts their users, so that an engine is closed only after its last user. listing.py decides what to load.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import structlog

from engines.base import Engine
from engines.errors import DeviceLost, EngineUnavailable, LoadStopped, ModelNotFound, RetouchError
from engines.manifest import Manifest
from engines.repository.listing import (
    VersionFiles,
    VersionKey,
    VersionState,
    list_folder,
    read_manifest_of,
    removed_versions,
    unreadable_versions,
    version_to_load,
)
from engines.repository.versions import (
    LeaseCounter,
    ModelStatus,
    ServedModel,
    VersionChange,
    VersionEntry,
    why_not_found,
)

_log = structlog.get_logger(__name__)


class ModelRepository:
    """The models that are served, loaded from a folder.

    Args:
        root: the folder of NAME/VERSION directories.
        open_engine: loads a model and warms it up; blocks meanwhile.
        wall_clock: returns seconds since the epoch, comparable with file times.
        only: the names of the models to load; None for all.
        first: the names of the models to load before the others, in this order.
        settle_s: a version with files younger than this is not refused yet: it may be half-written.
    """

    def __init__(
        self,
        root: Path,
        open_engine: Callable[[Path, Manifest], Engine],
        *,
        wall_clock: Callable[[], float] = time.time,
        only: Collection[str] | None = None,
        first: Sequence[str] = (),
        settle_s: float = 2.0,
    ) -> None:
        self.device_lost: DeviceLost | None = None  # raised while a model was loaded; the process must end
        self.misnamed: dict[Path, str] = {}  # folders with a model not served because of their names, at the last scan
        self._root = root
        self._open_engine = open_engine
        self._wall_clock = wall_clock
        self._only, self._first = only, first
        self._settle_s = settle_s
        self._entries: dict[VersionKey, VersionEntry] = {}
        self._lock = Lock()  # guards _entries and their contents; never held while an engine is loaded
        self._scanning = Lock()
        self._unreadable: set[VersionKey] = set()  # at the last scan
        self._closed = False

    def scan(self) -> list[VersionChange]:
        """Bring the loaded models up to date with the folder; blocks while models load. Leases do not wait for it.

        Raises:
            DeviceLost: the device was lost while a model was loaded.
        """
        with self._scanning:
            found = self._list_versions()
            names, removed = {key.name for key in found}, removed_versions(found, self._entries)
            # removed models first, as loading needs memory; removed versions of other models after their successors
            changes = [self._remove_version(key) for key in removed if key.name not in names]
            for name in dict.fromkeys([*(name for name in self._first if name in names), *sorted(names)]):
                changes += self._load_newest(name, found)
            changes += [self._remove_version(key) for key in removed if key.name in names]
            for key in sorted(found):
                changes += self._offer_older(key, found[key])
            return changes

    @contextmanager
    def lease(self, name: str, version: int | None = None) -> Iterator[ServedModel]:
        """Lease a model for a `with` block; its engine stays open until the block ends.

        Args:
            name: the model.
            version: None for the newest that works; an older one is loaded by its first lease, which blocks.

        Raises:
            ModelNotFound: no such model and version can be served; the message lists those that can.
            RetouchError: the older version cannot be loaded.
        """
        lease_counter = self._acquire_lease(name, version)
        try:
            yield lease_counter.served
        finally:
            lease_counter.release()

    def reload(self, name: str, version: int | None = None, *, instead_of: Engine | None = None) -> bool:
        """Replace an engine that died or hangs; leases of the old engine stay valid.

        Their `ServedModel.current` is the new engine, which stays open for as long as they last.

        Args:
            name: the model.
            version: as for `lease`.
            instead_of: the engine to replace; nothing is done if another engine is already loaded in its place.

        Returns:
            Whether a new engine was loaded.

        Raises:
            ModelNotFound: as for `lease`.
            RetouchError: no engine could be loaded; the old one stays in place, so that this can be retried.
        """
        with self._lock:
            entry = self._pick_entry(name, version)
        with entry.loading:
            loaded = entry.lease_counter
            if instead_of is not None and (loaded is None or loaded.served.engine is not instead_of):
                return False
            self._serve_engine(entry, entry.version_files, self._open_model(entry.key, entry.version_files))
            return True

    def statuses(self) -> list[ModelStatus]:
        """Return the status of every version: by name, newest first."""
        with self._lock:
            entries = sorted(self._entries.values(), key=lambda entry: (entry.key.name, -entry.key.version))
            return [entry.status() for entry in entries]

    def close(self) -> None:
        """Retire all engines; those in use are closed after their last lease. Nothing can be leased afterwards."""
        with self._lock:
            entries, self._entries, self._closed = self._entries, {}, True
        for entry in entries.values():
            if entry.lease_counter:
                entry.lease_counter.retire()

    def _list_versions(self) -> dict[VersionKey, VersionFiles]:
        """List the folder; a version that cannot be read for the moment keeps its previous listing."""
        with self._lock:
            if self._closed:
                return {}
            before = {key: entry.version_files for key, entry in self._entries.items()}
        listing = list_folder(self._root)
        self.misnamed = listing.misnamed
        found = {key: files for key, files in listing.versions.items() if self._only is None or key.name in self._only}
        kept = unreadable_versions(self._root, found, before)
        for key in sorted(set(kept) - self._unreadable):
            _log.warning("model cannot be read, its loaded version keeps serving", model=str(key), root=str(self._root))
        self._unreadable = set(kept)
        return found | kept

    def _version_states(self) -> dict[VersionKey, VersionState]:
        with self._lock:
            return {key: entry.version_state(self._wall_clock()) for key, entry in self._entries.items()}

    def _load_newest(self, name: str, found: dict[VersionKey, VersionFiles]) -> list[VersionChange]:
        """Load the newest version that works, unless it is loaded, and unload those older than it."""
        changes: list[VersionChange] = []
        tried: set[VersionKey] = set()
        while key := version_to_load(name, {k: v for k, v in found.items() if k not in tried}, self._version_states()):
            tried.add(key)
            try:
                served = self._open_model(key, found[key])
            except RetouchError as error:
                changes += self._record_refusal(key, found[key], error)
                if self.device_lost is not None:
                    raise
                continue
            if not self._serve_engine(self._ensure_entry(key, found[key], served.manifest), found[key], served):
                return changes
            _log.info("model loaded", model=str(key), engine=served.engine.name, precision=served.engine.precision)
            return [*changes, VersionChange("loaded", key), *map(self._unload_engine, self._older_ready(key))]
        return changes

    def _open_model(self, key: VersionKey, version_files: VersionFiles) -> ServedModel:
        """Read the manifest and open an engine; every failure is raised as a RetouchError."""
        try:
            manifest = read_manifest_of(key, version_files.directory)
            return ServedModel(manifest, self._open_engine(version_files.directory, manifest))
        except RetouchError as error:
            self.device_lost = error if isinstance(error, DeviceLost) else self.device_lost
            raise
        except Exception as error:  # a broken model must not end the loader thread, whatever its runtime raises
            raise EngineUnavailable(f"{key} cannot be loaded: {type(error).__name__}: {error}") from error

    def _ensure_entry(self, key: VersionKey, version_files: VersionFiles, manifest: Manifest | None) -> VersionEntry:
        """Return the entry of that version, added if it is new and the repository is open."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = VersionEntry(key, version_files, "available" if manifest else "refused", manifest)
                if not self._closed:
                    self._entries[key] = entry
            return entry

    def _serve_engine(self, entry: VersionEntry, version_files: VersionFiles, served: ServedModel) -> bool:
        """Serve this engine from now on; returns False if the version was removed while it loaded."""
        lease_counter = LeaseCounter(served)
        with self._lock:
            there = self._entries.get(entry.key) is entry
            old, entry.lease_counter = entry.lease_counter, lease_counter
            entry.accept(version_files, served.manifest)
            entry.state = "ready"
        if old:
            old.retire(lease_counter if old.served.manifest == served.manifest else None)
        if not there:
            lease_counter.retire()
        return there

    def _record_refusal(self, key: VersionKey, version_files: VersionFiles, error: RetouchError) -> list[VersionChange]:
        """Record once that these files cannot be served; an engine already loaded for that version keeps serving."""
        if isinstance(error, LoadStopped) or not version_files.is_settled(self._wall_clock(), self._settle_s):
            return []
        entry = self._ensure_entry(key, version_files, None)
        with self._lock:
            if entry.refuse(version_files, error, self._wall_clock()):
                _log.warning("model refused", model=str(key), reason=str(error))
        return [VersionChange("refused", key, str(error))]

    def _offer_older(self, key: VersionKey, version_files: VersionFiles) -> list[VersionChange]:
        """Make an older version available for leases; if its files changed, a loaded engine of it is unloaded."""
        entry = self._version_states().get(key)
        if entry is not None and entry.files == version_files.files:
            return []
        try:
            manifest = read_manifest_of(key, version_files.directory)
        except RetouchError as error:
            return self._record_refusal(key, version_files, error)
        if not any(k.name == key.name and k > key and v.state == "ready" for k, v in self._version_states().items()):
            return []  # the newest version's files are still being written: the next scan decides
        noted = self._ensure_entry(key, version_files, manifest)
        with self._lock:
            noted.accept(version_files, manifest)
        return [self._unload_engine(key)]

    def _unload_engine(self, key: VersionKey) -> VersionChange:
        with self._lock:
            entry = self._entries[key]
            old, entry.lease_counter, entry.state = entry.lease_counter, None, "available"
        if old:
            old.retire()
        return VersionChange("available", key)

    def _remove_version(self, key: VersionKey) -> VersionChange:
        with self._lock:
            entry = self._entries.pop(key, None)
        if entry and entry.lease_counter:
            entry.lease_counter.retire()
        _log.info("model removed", model=str(key))
        return VersionChange("removed", key)

    def _older_ready(self, key: VersionKey) -> list[VersionKey]:
        return [k for k, v in self._version_states().items() if k.name == key.name and k < key and v.state == "ready"]

    def _acquire_lease(self, name: str, version: int | None) -> LeaseCounter:
        while True:
            with self._lock:
                entry = self._pick_entry(name, version)
                lease_counter = entry.lease_counter
            if lease_counter and lease_counter.acquire():
                return lease_counter
            self._load_lazily(entry)

    def _load_lazily(self, entry: VersionEntry) -> None:
        with entry.loading:
            if entry.lease_counter is not None:  # another lease loaded it meanwhile
                return
            try:
                served = self._open_model(entry.key, entry.version_files)
            except RetouchError as error:
                self._record_refusal(entry.key, entry.version_files, error)
                raise
            self._serve_engine(entry, entry.version_files, served)

    def _pick_entry(self, name: str, version: int | None) -> VersionEntry:
        """Return the entry to serve; the caller holds the lock."""
        for key, entry in sorted(self._entries.items(), reverse=True):
            usable = entry.state == "ready" if version is None else entry.state != "refused" and key.version == version
            if key.name == name and usable:
                return entry
        if self._closed:
            raise ModelNotFound(f"no model {name}: the repository is closed")
        there = self._entries if self._only is None else list_folder(self._root).versions
        raise ModelNotFound(why_not_found(name, version, self._entries, there, self._root))
