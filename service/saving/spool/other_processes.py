"""A look into the segments of other processes, which only grow: what was seen of one is not read again.

Every request for a result that is durable already, or that there is not, looks for it here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from service.saving.spool.segment import Record, read_body, record_at, scan

SUFFIX = ".log"


@dataclass(slots=True)
class _Seen:
    """Of one segment: how far it was read, and where its records begin; some may be crossed out since."""

    end: int = 0
    places: dict[str, int] = field(default_factory=dict)


class Neighbours:
    """Thread-safe; its methods block."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folders: dict[Path, dict[Path, _Seen]] = {}

    def find(self, folder: Path, result_id: str) -> tuple[Record, bytes] | None:
        """A result that the process of that folder has spooled, and that counts.

        Raises:
            OSError: it is there and cannot be read.
        """
        with self._lock:
            before = self._folders.get(folder, {})
            seen = {path: before.get(path) or _Seen() for path in segments(folder)}
            self._folders[folder] = seen
        for path, known in seen.items():
            with suppress(FileNotFoundError), opened(path) as descriptor:
                with self._lock:
                    more, known.end = scan(descriptor, known.end)
                    known.places.update((record.line.id, record.at) for record in more)
                    at = known.places.get(result_id)
                record = None if at is None else record_at(descriptor, at)
                if record is not None and (body := read_body(descriptor, record)) is not None:
                    return record, body
        return None

    def forget_all_but(self, folders: list[Path]) -> None:
        """The others are gone."""
        with self._lock:
            self._folders = {folder: self._folders[folder] for folder in folders if folder in self._folders}


def segments(folder: Path) -> list[Path]:
    """In a process's folder; none where it is gone."""
    try:
        return sorted(folder / entry.name for entry in os.scandir(folder) if entry.name.endswith(SUFFIX))
    except FileNotFoundError:
        return []


@contextmanager
def opened(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Its descriptor."""
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
