"""The results that this process has spooled or inherited, and the location of each in its segments."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

import structlog

from service.saving.spool.segment import Record, Segment, SpooledResult, mark_deleted, read_body
from service.saving.spool.segment_files import open_descriptor

_log = structlog.get_logger(__name__)


class RecordLocation(NamedTuple):
    """Location of a result: its segment and its record there."""

    segment: Segment
    record: Record


class OwnRecords:
    """Locations of own results, by id. Thread-safe; `read`, `remove` and `mark_deleted` block on the disk."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # guards the locations and the segments' counts; a single look-up needs no lock
        self._locations: dict[str, RecordLocation] = {}

    def location(self, result_id: str) -> RecordLocation | None:
        """Return the location of a result; None if it is not here."""
        return self._locations.get(result_id)

    def ids(self) -> set[str]:
        """Return the ids of all results here."""
        with self.lock:
            return set(self._locations)

    def enter(self, locations: Mapping[str, RecordLocation]) -> None:
        """Add results, replacing earlier copies; the caller holds `lock`."""
        self._locations.update(locations)

    def forget(self, result_ids: Collection[str]) -> None:
        """Forget the locations of results without removing the results; the caller holds `lock`."""
        for result_id in result_ids:
            del self._locations[result_id]

    def read(self, result_id: str, body: bytes | None = None) -> SpooledResult | None:
        """Read a result; None if it is not here, or is damaged.

        Args:
            result_id: id of the result.
            body: the image, if the caller still has it; then the disk is not read.

        Raises:
            OSError: the result cannot be read now.
        """
        location = self._locations.get(result_id)
        if location is None:
            return None
        if body is None:
            try:
                with open_descriptor(location.segment.path) as descriptor:
                    body = read_body(descriptor, location.record)
            except FileNotFoundError:  # durable meanwhile, or removed by another program
                return None
        return None if body is None else SpooledResult(body, location.record.sidecar)

    def remove(self, result_ids: Iterable[str]) -> None:
        """Remove results; if that fails on the disk, another process may inherit them."""
        with self.lock:
            locations = [location for one in result_ids if (location := self._locations.pop(one, None)) is not None]
        self.mark_deleted(locations)

    def mark_deleted(self, locations: Iterable[RecordLocation]) -> None:
        """Mark records as deleted, and remove full segments that have no valid records left."""
        records: dict[Segment, list[Record]] = {}
        for segment, record in locations:
            records.setdefault(segment, []).append(record)
        for segment, done in records.items():
            self._mark_deleted_in(segment, done)

    def _mark_deleted_in(self, segment: Segment, records: list[Record]) -> None:
        try:
            with suppress(FileNotFoundError), open_descriptor(segment.path, os.O_WRONLY) as descriptor:
                for record in records:
                    mark_deleted(descriptor, record)
        except OSError as error:
            for record in records:
                _log.warning(
                    "a saved result could not be marked as deleted in the spool",
                    result=record.line.id,
                    error=str(error),
                )
        with self.lock:
            segment.valid_records -= len(records)
            done = segment.full and not segment.valid_records
        if done:  # without the lock, because unlinking waits for the file system's journal
            with suppress(OSError):  # its records are marked as deleted
                segment.path.unlink(missing_ok=True)
