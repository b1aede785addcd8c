"""The model repository: NAME/VERSION directories, several versions at a time, changed without a restart.

`scan` (a loader thread calls it now and then) loads each model's newest version that works; `lease` hands engines
out and counts, so that an engine is closed only after its last user. listing.py decides, this file does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import structlog

from engines.base import Engine
from engines.errors import DeviceLost, EngineUnavailable, ModelNotFound, RetouchError
from engines.manifest import Manifest
from engines.repository.listing import (
    Key,
    Known,
    Listed,
    gone,
    list_versions,
    next_to_load,
    read_manifest_of,
    unreadable,
)
from engines.repository.versions import Change, Entry, Holder, ModelStatus, ServedModel, why_not_found

_log = structlog.get_logger(__name__)

__all__ = ["Change", "ModelRepository", "ModelStatus", "ServedModel"]


class ModelRepository:
    """The models that are served.

    Args:
        root: the folder of NAME/VERSION directories.
        open_engine: loads a model and warms it up; blocks for as long as that takes.
        wall_clock: seconds since the epoch, as file times are.
        only: the names of the models to follow; None for all that are there.
        settle_s: a version whose files are younger than this is not called broken yet: it may be half-written.
    """

    def __init__(
        self,
        root: Path,
        open_engine: Callable[[Path, Manifest], Engine],
        *,
        wall_clock: Callable[[], float] = time.time,
        only: Collection[str] | None = None,
        settle_s: float = 2.0,
    ) -> None:
        self.device_lost: DeviceLost | None = None
        """Met while a model was loaded; the process must end."""
        self._root = root
        self._open_engine = open_engine
        self._wall_clock = wall_clock
        self._only = only
        self._settle_s = settle_s
        self._entries: dict[Key, Entry] = {}
        self._lock = Lock()  # guards _entries and what is in them; never held while something is loaded
        self._scanning = Lock()
        self._kept: set[Key] = set()
        """What could not be read at the last scan."""
        self._closed = False

    def scan(self) -> list[Change]:
        """Look at the folder and follow it; blocks while models load, readers go on meanwhile.

        Raises:
            DeviceLost: as `device_lost` says.
        """
        with self._scanning:
            found = self._look()
            changes: list[Change] = []
            for name in sorted({key.name for key in found}):
                changes += self._load_newest(name, found)
            # only now, so that a model whose newest version was removed is never without one
            changes += [self._remove(key) for key in gone(found, self._entries)]
            for key in sorted(found):
                changes += self._note_older(key, found[key])
            return changes

    @contextmanager
    def lease(self, name: str, version: int | None = None) -> Iterator[ServedModel]:
        """Use a model; its engine stays open until the block ends.

        Args:
            name: the model.
            version: None for the newest that works; an older one is loaded on its first lease, which blocks.

        Raises:
            ModelNotFound: nothing of that name and version can be served; the message says what can.
            RetouchError: the older version was asked for and cannot be loaded.
        """
        holder = self._acquire(name, version)
        try:
            yield holder.served
        finally:
            holder.release()

    def reload(self, name: str, version: int | None = None, *, instead_of: Engine | None = None) -> bool:
        """Put a fresh engine in the place of one that died or hangs; leases of the old one go on with the old one.

        They find the fresh one, which stays open for as long as they last, as `ServedModel.current`.

        Args:
            name: the model.
            version: as for `lease`.
            instead_of: the engine to replace; nothing is done where another is loaded by now.

        Returns:
            Whether an engine was loaded.

        Raises:
            ModelNotFound: as `lease`.
            RetouchError: no engine could be loaded; the old one stays where it is, so that this can be tried again.
        """
        with self._lock:
            entry = self._pick(name, version)
        with entry.loading:
            loaded = entry.holder
            if instead_of is not None and (loaded is None or loaded.served.engine is not instead_of):
                return False
            self._install(entry, entry.listed, self._open(entry.key, entry.listed))
            return True

    def statuses(self) -> list[ModelStatus]:
        """Every version that is there: by name, newest first."""
        with self._lock:
            entries = sorted(self._entries.values(), key=lambda entry: (entry.key.name, -entry.key.version))
            return [entry.status() for entry in entries]

    def close(self) -> None:
        """Retire everything; engines in use close after their last lease. Nothing can be leased afterwards."""
        with self._lock:
            entries, self._entries, self._closed = self._entries, {}, True
        for entry in entries.values():
            if entry.holder:
                entry.holder.retire()

    def _look(self) -> dict[Key, Listed]:
        """What is in the folder; a version that cannot be read for a while is what it was before."""
        with self._lock:
            if self._closed:
                return {}
            before = {key: entry.listed for key, entry in self._entries.items()}
        there = list_versions(self._root)
        found = {key: listed for key, listed in there.items() if self._only is None or key.name in self._only}
        kept = unreadable(self._root, found, before)
        for key in sorted(set(kept) - self._kept):
            _log.warning("model cannot be read, what is loaded of it serves on", model=str(key), root=str(self._root))
        self._kept = set(kept)
        return found | kept

    def _known(self) -> dict[Key, Known]:
        with self._lock:
            return {key: entry.known(self._wall_clock()) for key, entry in self._entries.items()}

    def _load_newest(self, name: str, found: dict[Key, Listed]) -> list[Change]:
        """Load the newest version that works, unless it is loaded; the loaded ones older than it are set aside."""
        changes: list[Change] = []
        tried: set[Key] = set()
        while key := next_to_load(name, {k: v for k, v in found.items() if k not in tried}, self._known()):
            tried.add(key)
            try:
                served = self._open(key, found[key])
            except RetouchError as error:
                changes += self._refuse(key, found[key], error)
                if self.device_lost is not None:
                    raise
                continue
            if not self._install(self._entry(key, found[key], served.manifest), found[key], served):
                return changes
            _log.info("model loaded", model=str(key), engine=served.engine.name, precision=served.engine.precision)
            changes.append(Change("loaded", key))
            changes += [self._set_aside(old) for old in self._older_ready(key)]
            return changes
        return changes

    def _open(self, key: Key, listed: Listed) -> ServedModel:
        """Open an engine; anything that goes wrong is a RetouchError."""
        try:
            manifest = read_manifest_of(key, listed.directory)
            return ServedModel(manifest, self._open_engine(listed.directory, manifest))
        except RetouchError as error:
            self.device_lost = error if isinstance(error, DeviceLost) else self.device_lost
            raise
        except Exception as error:  # a broken model must not end the loader, whatever its runtime raises
            raise EngineUnavailable(f"{key} cannot be loaded: {type(error).__name__}: {error}") from error

    def _entry(self, key: Key, listed: Listed, manifest: Manifest | None) -> Entry:
        """The entry of that version, made if it is new; a closed repository takes in nothing."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = Entry(key, listed, "available" if manifest else "refused", manifest)
                if not self._closed:
                    self._entries[key] = entry
            return entry

    def _install(self, entry: Entry, listed: Listed, served: ServedModel) -> bool:
        """Serve an engine from now on; False when the version was removed while it loaded."""
        holder = Holder(served)
        with self._lock:
            there = self._entries.get(entry.key) is entry
            old, entry.holder = entry.holder, holder
            entry.accept(listed, served.manifest)
            entry.state = "ready"
        if old:
            old.retire(holder if old.served.manifest == served.manifest else None)
        if not there:
            holder.retire()
        return there

    def _refuse(self, key: Key, listed: Listed, error: RetouchError) -> list[Change]:
        """Remember that these files are broken and say so once; what is loaded of that version goes on serving."""
        if not listed.settled(self._wall_clock(), self._settle_s):
            return []
        entry = self._entry(key, listed, None)
        with self._lock:
            entry.refuse(listed, error, self._wall_clock())
        _log.warning("model refused", model=str(key), reason=str(error))
        return [Change("refused", key, str(error))]

    def _note_older(self, key: Key, listed: Listed) -> list[Change]:
        """Offer a version that is not the newest; files that changed under a loaded one set it aside."""
        entry = self._known().get(key)
        if entry is not None and entry.files == listed.files:
            return []
        try:
            manifest = read_manifest_of(key, listed.directory)
        except RetouchError as error:
            return self._refuse(key, listed, error)
        if not self._has_newer_ready(key):
            return []  # a newest version whose files are still being written: the next scan decides
        noted = self._entry(key, listed, manifest)
        with self._lock:
            noted.accept(listed, manifest)
        return [self._set_aside(key)]

    def _set_aside(self, key: Key) -> Change:
        with self._lock:
            entry = self._entries[key]
            old, entry.holder, entry.state = entry.holder, None, "available"
        if old:
            old.retire()
        return Change("available", key)

    def _remove(self, key: Key) -> Change:
        with self._lock:
            entry = self._entries.pop(key, None)
        if entry and entry.holder:
            entry.holder.retire()
        _log.info("model removed", model=str(key))
        return Change("removed", key)

    def _older_ready(self, key: Key) -> list[Key]:
        return [k for k, known in self._known().items() if k.name == key.name and k < key and known.state == "ready"]

    def _has_newer_ready(self, key: Key) -> bool:
        return any(k.name == key.name and k > key and known.state == "ready" for k, known in self._known().items())

    def _acquire(self, name: str, version: int | None) -> Holder:
        while True:
            with self._lock:
                entry = self._pick(name, version)
                holder = entry.holder
            if holder and holder.acquire():
                return holder
            self._load_lazily(entry)

    def _load_lazily(self, entry: Entry) -> None:
        with entry.loading:
            if entry.holder is not None:  # another lease was faster
                return
            try:
                served = self._open(entry.key, entry.listed)
            except RetouchError as error:
                self._refuse(entry.key, entry.listed, error)
                raise
            self._install(entry, entry.listed, served)

    def _pick(self, name: str, version: int | None) -> Entry:
        """The entry to serve; the caller holds the lock."""
        for key, entry in sorted(self._entries.items(), reverse=True):
            usable = entry.state == "ready" if version is None else entry.state != "refused" and key.version == version
            if key.name == name and usable:
                return entry
        if self._closed:
            raise ModelNotFound(f"no model {name}: the repository is closed")
        there = self._entries if self._only is None else list_versions(self._root)
        raise ModelNotFound(why_not_found(name, version, self._entries, there, self._root))
