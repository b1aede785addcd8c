"""The spool on disk: a result is written here before its reply, and removed once it is in the durable storage.

Each process appends to segments in its own folder (service/saving/spool/segment.py). Writes are not synced: the page
cache survives the process, even `kill -9`. `sync` makes a result survive a power failure.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from service.saving.local_disk.disk import Disk
from service.saving.spool.inheritance import Inheritance
from service.saving.spool.other_processes import OtherProcesses
from service.saving.spool.own_records import OwnRecords, RecordLocation
from service.saving.spool.process_folder import SpoolOwner
from service.saving.spool.segment import NewRecord, Segment, SpooledResult, encode_record, scan
from service.saving.spool.segment_files import SUFFIX, erase_in, free_deleted_in, list_segments, open_descriptor


class SpoolFiles:
    """This process's part of the spool, and read access to other processes' parts. All methods block; thread-safe.

    Args:
        owner: this process's folder.
        disk: the disk operations; by default those of the real disk.
        close_timeout_s: longest time that `close` waits for a hung write, in seconds.
    """

    def __init__(self, owner: SpoolOwner, disk: Disk | None = None, close_timeout_s: float = 5.0) -> None:
        self._close_timeout_s = close_timeout_s
        self.owner = owner
        self._disk = disk or Disk()
        self._own = OwnRecords()
        self._lock = self._own.lock  # guards all below
        self._current: tuple[Segment, int] | None = None  # the segment to append to, and its descriptor
        self._numbers = count(1)
        self._other_processes = OtherProcesses()
        self._inheritance = Inheritance(owner, self._own, self._new_segment_path)

    def open(self) -> None:
        """Create this process's folder. Raises OSError if it cannot be created."""
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
            ValueError, TypeError: the sidecar cannot be encoded; nothing was spooled.
        """
        new = encode_record(result_id, body, sidecar)
        with self._lock:
            before = self._own.location(result_id)
            try:
                self._append(new)
            except OSError:
                if self._current is None or not self._current[0].end or not self._end_current_segment():
                    raise
                self._append(new)  # removing a segment of deleted records has freed space
        if before is not None:
            self._own.mark_deleted([before])

    def read(self, result_id: str, body: bytes | None = None) -> SpooledResult | None:
        """Read a result that any process has spooled; None if it is not in the spool.

        Args:
            result_id: id of the result.
            body: the image, if the caller still has it, so that it need not be read.

        Raises:
            OSError: the result cannot be read, or was not found while a part of the spool cannot be read.
        """
        if (own := self._own.read(result_id, body)) is not None:  # the usual case, without listing folders
            return own
        failed: OSError | None = None
        for folder in self._all_folders():
            try:
                if folder == self.owner.folder:
                    own = self._own.read(result_id)
                elif found := self._other_processes.find(folder, result_id):
                    own = SpooledResult(found[1], found[0].sidecar)
            except OSError as error:  # it may be in another folder
                failed = failed or error
            if own is not None:
                return own
        if failed:
            raise failed
        return None

    def ids(self) -> set[str]:
        """Return the ids of all results in any process's spool. Raises OSError if a folder cannot be listed."""
        ids: set[str] = set()
        for folder in self._all_folders():
            if folder == self.owner.folder:
                ids |= self._own.ids()
                continue
            for path in list_segments(folder):
                with suppress(FileNotFoundError), open_descriptor(path) as descriptor:
                    ids.update(record.line.id for record in scan(descriptor)[0])
        return ids

    def sync(self, result_id: str) -> None:
        """Sync a result to the device; does nothing if it is no longer in the spool.

        Raises:
            OSError: the disk is failing; records of the segment may be lost, and nothing more is written to it.
        """
        own = self._own.location(result_id)
        if own is None:
            return
        segment = own.segment
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
        """Return whether the result is in a segment whose sync failed."""
        own = self._own.location(result_id)
        return own is not None and own.segment.suspect

    def remove(self, *result_ids: str) -> None:
        """Remove results that are durable; if that fails, another process may save them again, which is harmless."""
        self._own.remove(result_ids)

    def erase(self, result_id: str) -> None:
        """Erase every copy of a deleted result in the spools of all processes. Raises OSError if one may be left."""
        failed: OSError | None = None
        for folder in self._all_folders():
            try:
                erase_in(folder, result_id)
            except OSError as error:  # noqa: PERF203 -- a damaged folder must not stop the others
                failed = failed or error
        if failed:
            raise failed

    def free_removed(self) -> None:
        """Free the space of removed results in segments that still have others; for a full disk, as it reads them all.

        Raises:
            OSError: this process's folder cannot be listed.
        """
        free_deleted_in(self.owner.folder)

    def inherit(self) -> Iterator[tuple[str, SpooledResult]]:
        """See `Inheritance.inherit`."""
        return self._inheritance.inherit()

    def _append(self, new: NewRecord) -> None:
        segment, descriptor = self._writable_segment()
        record = new.placed(segment.end)
        try:
            self._disk.append(descriptor, (new.head, new.body), segment.end)
        except OSError:
            with suppress(OSError):  # an incomplete record is ignored anyway; the first error is the one to report
                os.ftruncate(descriptor, segment.end)
            raise
        segment.end = record.end
        segment.valid_records += 1
        self._own.enter({new.line.id: RecordLocation(segment, record)})

    def _writable_segment(self) -> tuple[Segment, int]:
        """Return the segment to append to and its descriptor; a new one if there is none, or it is full or moved."""
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
        """Close the current segment; return whether it had no valid records and was removed."""
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
        """Return the path of a new segment."""
        return self.owner.folder / f"{next(self._numbers)}{SUFFIX}"

    @contextmanager
    def _open_for_sync(self, segment: Segment) -> Iterator[int]:
        """Open a descriptor to sync a segment; if possible the one that wrote it, as only that reports lost writes."""
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
        """Yield the folders of all processes twice, because `inherit` may move a result during the first search.

        If folders were created or removed meanwhile, they are listed and yielded again.
        """
        folders = None
        while (now := self.owner.folders()) != folders:
            folders = now
            self._other_processes.keep_only(folders)
            yield from (*folders, *folders)
