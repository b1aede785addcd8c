"""Operations on the segment files of a process: listing, opening, and freeing the space of deleted records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from service.saving.spool.segment import erase, free_deleted

SUFFIX = ".log"


def list_segments(folder: Path) -> list[Path]:
    """Return the segments in a process's folder, sorted; none if the folder does not exist."""
    try:
        return sorted(folder / entry.name for entry in os.scandir(folder) if entry.name.endswith(SUFFIX))
    except FileNotFoundError:
        return []


def erase_in(folder: Path, result_id: str) -> None:
    """Erase every copy of a result in the segments of a process's folder, including records marked as deleted.

    Raises:
        OSError: a copy cannot be erased now; raised after the other segments.
    """
    failed: OSError | None = None
    for path in list_segments(folder):
        try:
            with suppress(FileNotFoundError), open_descriptor(path, os.O_RDWR) as descriptor:
                erase(descriptor, result_id)
        except OSError as error:  # noqa: PERF203 -- a damaged segment must not stop the others
            failed = failed or error
    if failed:
        raise failed


def free_deleted_in(folder: Path) -> None:
    """Free the space of the records marked as deleted in the segments of a process's folder, as far as possible."""
    for path in list_segments(folder):
        with suppress(OSError), open_descriptor(path, os.O_RDWR) as descriptor:
            free_deleted(descriptor)


@contextmanager
def open_descriptor(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    """Open a file for the duration of the block; yields its descriptor."""
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
