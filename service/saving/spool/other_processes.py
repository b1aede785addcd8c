"""Search for results in other processes' spool segments. Segments only grow, so each part is scanned only once.

Every request for a result that is not in this process's spool searches here before it reads the storage.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from service.saving.spool.segment import Record, read_body, record_at, scan
from service.saving.spool.segment_files import list_segments, open_descriptor


@dataclass(slots=True)
class _ScannedSegment:
    """The scanned part of a segment: its end, and its records' offsets by id; records may have been deleted since."""

    end: int = 0
    offsets: dict[str, int] = field(default_factory=dict)


class OtherProcesses:
    """Cached index of the segments of other processes. Thread-safe; its methods block."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folders: dict[Path, dict[Path, _ScannedSegment]] = {}

    def find(self, folder: Path, result_id: str) -> tuple[Record, bytes] | None:
        """Find a valid result in the segments of a folder; return its record and image, or None.

        Raises:
            OSError: the result exists but cannot be read.
        """
        with self._lock:
            before = self._folders.get(folder, {})
            seen = {path: before.get(path) or _ScannedSegment() for path in list_segments(folder)}
            self._folders[folder] = seen
        for path, known in seen.items():
            with suppress(FileNotFoundError), open_descriptor(path) as descriptor:
                with self._lock:
                    more, known.end = scan(descriptor, known.end)
                    known.offsets.update((record.line.id, record.at) for record in more)
                    at = known.offsets.get(result_id)
                record = None if at is None else record_at(descriptor, at)
                if record is not None and (body := read_body(descriptor, record)) is not None:
                    return record, body
        return None

    def keep_only(self, folders: list[Path]) -> None:
        """Drop the cached segments of all other folders, which no longer exist."""
        with self._lock:
            self._folders = {folder: self._folders[folder] for folder in folders if folder in self._folders}
