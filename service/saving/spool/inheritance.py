"""Inheritance of spools: segments of dead processes are moved into this process's folder."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import structlog

from service.saving.spool.own_records import OwnRecords, RecordLocation
from service.saving.spool.process_folder import SpoolOwner
from service.saving.spool.segment import Record, Segment, SpooledResult, scan
from service.saving.spool.segment_files import list_segments, open_descriptor

_log = structlog.get_logger(__name__)


class Inheritance:
    """Takes over the results of dead processes. Not thread-safe; `inherit` blocks.

    Args:
        owner: this process's folder.
        own: the results of this process, to which inherited ones are added.
        new_path: makes the path of a new segment of this process.
    """

    def __init__(self, owner: SpoolOwner, own: OwnRecords, new_path: Callable[[], Path]) -> None:
        self._owner, self._own, self._new_path = owner, own, new_path
        self._taken_over: deque[str] = deque()
        """Ids of inherited results that `inherit` has not yielded yet."""

    def inherit(self) -> Iterator[tuple[str, SpooledResult]]:
        """Take over the results of dead processes, and yield each with its id.

        An incomplete result, which was never acknowledged because its process died before the reply, is logged and
        removed.

        Raises:
            OSError: a result could not be read or moved, and is retried next time; raised after the others are yielded.
        """
        self._owner.sweep()
        failed = [error for folder in self._owner.folders()[1:] for error in self._adopt_folder(folder)]
        for _ in range(len(self._taken_over)):
            result_id = self._taken_over.popleft()
            try:
                found = self._own.read(result_id)
            except OSError as error:
                failed.append(error)
                self._taken_over.append(result_id)
                continue
            if found is not None:
                yield result_id, found
            else:
                _log.warning(
                    "a partly written result, which was not promised, was removed from the spool", result=result_id
                )
                self._own.remove([result_id])
        if failed:
            raise failed[0]

    def _adopt_folder(self, folder: Path) -> list[OSError]:
        """Move the segments of a process, if it is dead; returns the errors."""
        failed: list[OSError] = []
        try:
            with self._owner.inherit(folder) as dead:
                segments = list_segments(folder) if dead else []
                if segments:
                    self._owner.recreate()  # this process's folder may have been removed
                for path in segments:
                    try:
                        self._adopt_segment(path)
                    except OSError as error:  # noqa: PERF203 -- one segment must not stop the others
                        failed.append(error)
        except OSError as error:  # such as a folder of another user's process
            failed.append(error)
        return failed

    def _adopt_segment(self, path: Path) -> None:
        """Move a dead process's segment to this process's folder."""
        with open_descriptor(path) as descriptor:  # before the move: an unreadable segment stays for the next attempt
            found, whole = scan(descriptor)
            torn = os.fstat(descriptor).st_size - whole
        segment = Segment(self._new_path(), whole, len(found), sealed=True)
        last = {record.line.id: record for record in found}
        adopted = {one: RecordLocation(segment, last[one]) for one in last if self._own.read(one) is None}
        with self._own.lock:  # before the move, so that readers find a result in either folder
            damaged = {one: location for one in adopted if (location := self._own.location(one)) is not None}
            self._own.enter(adopted)
        try:
            path.rename(segment.path)
        except OSError:
            with self._own.lock:
                self._own.forget(adopted)
                self._own.enter(damaged)
            raise
        self._taken_over.extend(one for one in adopted if one not in damaged)
        if torn:
            _log.warning(
                "the end of a segment is incomplete, and was not promised, or damaged; it is skipped", bytes=torn
            )
        self._mark_copies_deleted(segment, found, adopted, damaged)
        if not found:
            segment.path.unlink(missing_ok=True)

    def _mark_copies_deleted(
        self,
        segment: Segment,
        found: list[Record],
        adopted: dict[str, RecordLocation],
        damaged: dict[str, RecordLocation],
    ) -> None:
        """Keep one copy of each result: a process may die after spooling a result again, before removing the first."""
        kept = {location.record.at for location in adopted.values()}
        copies = [RecordLocation(segment, record) for record in found if record.at not in kept]
        self._own.mark_deleted([*copies, *damaged.values()])
