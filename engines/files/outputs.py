"""Checks before long work that its output can be written."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile


def check_output(path: Path) -> None:
    """Check by writing that a file can be written there: its folder is made, everything else stays unchanged.

    Raises:
        OSError: no file can be written there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() or path.is_file():
        path.open("ab").close()
    elif not path.exists():  # a pipe or a device is not opened, because its reader would take that for the output
        TemporaryFile(dir=path.parent).close()
