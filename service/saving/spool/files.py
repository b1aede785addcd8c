"""The spool on disk: a result is written here before its reply, and removed when it is in the durable storage.

Each process appends to segments in its own folder (service/saving/spool/segment.py). Writes are not synced: the page
cache survives the process, even `kill -9`. `sync` makes a result survive a power failure.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import structlog

from service.saving.local_disk.disk import Disk
from service.saving.spool.other_processes import SUFFIX, OtherProcesses, erase_in, list_segments, open_descriptor
from service.saving.spool.process_folder import SpoolOwner
from service.saving.spool.segment import Record, Segment, SpooledResult, encode_record, mark_deleted, read_body, scan

_log = structlog.get_logger(__name__)


class SpoolFiles:
    """This process's part of the spool, and read access to those of others. All methods block; all are thread-safe.

    Args:
        owner: this process's folder.
        disk: by default the real one.
        close_timeout_s: the longest that `close` waits for a write that hangs.
    """

    def __init__(self, owner: SpoolOwner, disk: Disk | None = None, close_timeout_s: float = 5.0) -> None:
        self._close_timeout_s = close_timeout_s
        self.owner = owner
        self._disk = disk or Disk()
        self._lock = threading.Lock()  # guards all below; a single read of `_own` needs none
        self._own: dict[str, tuple[Segment, Record]] = {}
        self._current: tuple[Segment, int] | None = None  # the segment to append to, and its descriptor
        self._numbers = count(1)
        self._other_processes = OtherProcesses()
        self._taken_over: deque[str] = deque()
        """Ids of inherited results that `inherit` has not yielded yet."""

    def open(self) -> None:
        """Create this process's folder; OSError if it cannot be created."""
        self.owner.create()

    def close(self) -> None:
        """Close the segment and unlock the folder; another process inherits the results that are left."""
        if self._lock.acquire(timeout=self._close_timeout_s):  # with a timeout, because a write may hang in the disk
            self._end_current_segment()
            self._lock.release()
        self.owner.unlock_folder()

    def write(self, result_id: str, body: bytes, sidecar: dict[str, Any]) -> None:
        """Spool a result, replacing an earlier copy; if this process's folder was removed, create it again.

        Raises:
            OSError: the disk is full or failing; nothing was spooled.
        """
        with self._lock:
            before = self._own.get(result_id)
            try:
                self._append_record(result_id, body, sidecar)
            except OSError:
                if self._current is None or not self._current[0].end or not self._end_current_segment():
                    raise
                self._append_record(result_id, body, sidecar)  # removing a segment of deleted records has freed space
        if before is not None:
            self._delete_record(result_id, *before)

    def read(self, result_id: str) -> SpooledResult | None:
        """Read a result that any process has spooled; None if it is not in the spool.

        Raises:
            OSError: it exists and cannot be read.
        """
        if (own := self._read_own(result_id)) is not None:  # the usual case, without listing folders
            return own
        for folder in self._all_folders():
            if folder == self.owner.folder:
                own = self._read_own(result_id)
            elif found := self._other_processes.find(folder, result_id):
                own = SpooledResult(found[1], found[0].line.sidecar)
            if own is not None:
                return own
        return None

    def ids(self) -> set[str]:
        """Return the ids of all results that any process has spooled; OSError if a folder cannot be listed."""
        ids: set[str] = set()
        for folder in self._all_folders():
            if folder == self.owner.folder:
                with self._lock:
                    ids.update(self._own)
                continue
            for path in list_segments(folder):
                with suppress(FileNotFoundError), open_descriptor(path) as descriptor:
                    ids.update(record.line.id for record in scan(descriptor)[0])
        return ids

    def sync(self, result_id: str) -> None:
        """Sync a result to the device; does nothing if it is no longer in the spool.

        Raises:
            OSError: the disk is failing; records of this segment may be lost, and it is not written to any more.
        """
        own = self._own.get(result_id)
        if own is None:
            return
        segment = own[0]
        if segment.suspect:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        try:
            with suppress(FileNotFoundError), self._open_for_sync(segment) as descriptor:
                self._disk.sync(descriptor)
                self._disk.sync_directory(self.owner.folder)
        except OSError:
            segment.sealed = segment.suspect = True
            raise

    def is_suspect(self, result_id: str) -> bool:
        """Whether the result is in a segment whose sync failed."""
        own = self._own.get(result_id)
        return own is not None and own[0].suspect

    def remove(self, result_id: str) -> None:
        """Remove a result that is durable; if that fails, another process may save it again, which is harmless."""
        with self._lock:
            own = self._own.pop(result_id, None)
        if own is not None:
            self._delete_record(result_id, *own)

    def erase(self, result_id: str) -> None:
        """Overwrite every copy of a deleted result in the spools of all processes. Raises OSError if one is left."""
        for folder in self._all_folders():
            erase_in(folder, result_id)

    def inherit(self) -> Iterator[tuple[str, SpooledResult]]:
        """Take over the results of dead processes, and yield each with its id.

        An incomplete result was never acknowledged: its process died before the reply. It is logged and removed.

        Raises:
            OSError: raised after all others were yielded: one could not be read or moved, and is retried next time.
        """
        failed: list[OSError] = []
        for folder in self.owner.folders()[1:]:
            with self.owner.inherit(folder) as dead:
                for path in list_segments(folder) if dead else ():
                    try:
                        self._adopt_segment(path)
                    except OSError as error:  # noqa: PERF203 -- each by itself
                        failed.append(error)
        for _ in range(len(self._taken_over)):
            result_id = self._taken_over.popleft()
            try:
                found = self._read_own(result_id)
            except OSError as error:
                failed.append(error)
                self._taken_over.append(result_id)
                continue
            if found is not None:
                yield result_id, found
            else:
                _log.warning("a torn result was removed from the spool; it had not been promised", result=result_id)
                self.remove(result_id)
        if failed:
            raise failed[0]

    def _append_record(self, result_id: str, body: bytes, sidecar: dict[str, Any]) -> None:
        segment, descriptor = self._writable_segment()
        record, pieces = encode_record(result_id, body, sidecar, segment.end)
        try:
            self._disk.append(descriptor, pieces, segment.end)
        except OSError:
            with suppress(OSError):  # an incomplete record is ignored anyway; the first error is the one to report
                os.ftruncate(descriptor, segment.end)
            raise
        segment.end = record.end
        segment.valid_records += 1
        self._own[result_id] = (segment, record)

    def _writable_segment(self) -> tuple[Segment, int]:
        """The segment to append to, and its descriptor; a new one if the current is missing, full, removed or moved."""
        if self._current is not None:
            segment, descriptor = self._current
            if not segment.full and segment.is_at_its_path(descriptor):
                return self._current
            self._end_current_segment()
        try:
            self._current = self._new_segment()
        except FileNotFoundError:
            self.owner.recreate()
            self._current = self._new_segment()
        return self._current

    def _end_current_segment(self) -> bool:
        """Close the current segment; True if it had no valid records and was removed."""
        if self._current is None:
            return False
        (segment, descriptor), self._current = self._current, None
        segment.sealed = True
        os.close(descriptor)
        if segment.valid_records:
            return False
        with suppress(OSError):
            segment.path.unlink(missing_ok=True)
        return True

    def _new_segment(self) -> tuple[Segment, int]:
        path = self._new_segment_path()
        return Segment(path), self._disk.create(path)

    def _new_segment_path(self) -> Path:
        """The path of a new segment."""
        return self.owner.folder / f"{next(self._numbers)}{SUFFIX}"

    def _read_own(self, result_id: str) -> SpooledResult | None:
        own = self._own.get(result_id)
        if own is None:
            return None
        segment, record = own
        try:
            with open_descriptor(segment.path) as descriptor:
                body = read_body(descriptor, record)
        except FileNotFoundError:  # durable since then, or removed by somebody
            return None
        return None if body is None else SpooledResult(body, record.line.sidecar)

    def _adopt_segment(self, path: Path) -> None:
        """Move a dead process's segment to this process's folder."""
        with open_descriptor(
            path
        ) as descriptor:  # before it is moved: an unreadable segment stays for the next attempt
            found, whole = scan(descriptor)
            torn = os.fstat(descriptor).st_size - whole
        segment = Segment(self._new_segment_path(), whole, len(found), sealed=True)
        adopted = {record.line.id: (segment, record) for record in found}
        with self._lock:  # before it is moved, so that readers find it in one of both folders
            self._own.update(adopted)
        try:
            path.rename(segment.path)
        except OSError:
            with self._lock:
                for result_id in adopted:
                    del self._own[result_id]
            raise
        self._taken_over.extend(adopted)
        if torn:
            _log.warning("the end of a segment is torn, and was not promised, or damaged: it is left out", bytes=torn)
        if not found:
            segment.path.unlink(missing_ok=True)

    def _delete_record(self, result_id: str, segment: Segment, record: Record) -> None:
        """Mark a record as deleted, and remove its segment if that was the last."""
        try:
            with suppress(FileNotFoundError), open_descriptor(segment.path, os.O_WRONLY) as descriptor:
                mark_deleted(descriptor, record)
        except OSError as error:
            _log.warning("a saved result could not be crossed out", result=result_id, error=str(error))
        with self._lock:
            segment.valid_records -= 1
            done = segment.full and not segment.valid_records
        if done:  # without the lock, because it waits for the file system's journal
            with suppress(OSError):  # its records are marked as deleted
                segment.path.unlink(missing_ok=True)

    @contextmanager
    def _open_for_sync(self, segment: Segment) -> Iterator[int]:
        """A descriptor to sync a segment, if possible the one that wrote it, because only that reports lost writes."""
        with self._lock:
            current = self._current
            own = os.dup(current[1]) if current is not None and current[0] is segment else None
        if own is None:
            with open_descriptor(segment.path) as descriptor:
                yield descriptor
            return
        try:
            yield own
        finally:
            os.close(own)

    def _all_folders(self) -> Iterator[Path]:
        """The folders of all processes, each twice, because a result may be moved by `inherit` during the first search.

        They are listed again if folders were created or removed meanwhile.
        """
        folders = None
        while (now := self.owner.folders()) != folders:
            folders = now
            self._other_processes.keep_only(folders)
            yield from (*folders, *folders)
