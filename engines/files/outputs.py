"""Finds out before long work that what it will write can be written."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile


def check_output(path: Path) -> None:
    """Check by writing that a file can be written there: its folder is made, everything else stays unchanged.

    Raises:
        OSError: it cannot.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() or path.is_file():
        path.open("ab").close()
    elif not path.exists():  # a pipe or a device is not opened, because its reader would take that for the output
        TemporaryFile(dir=path.parent).close()
