"""The files that a benchmark writes its reports to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from retouch.bench.session import BenchFailed

_PLOT_SUFFIXES = (".png", ".svg", ".pdf")


def refuse_unwritable(json_file: Path | None, plot: Path | None) -> None:
    """Raises BenchFailed: a report could not be written in the end; better to know before the runs."""
    for path in (json_file, plot):
        if path:
            with writing(path):
                _try(path)
    if plot and plot.suffix not in _PLOT_SUFFIXES:
        raise BenchFailed(f"{plot} must end in one of {', '.join(_PLOT_SUFFIXES)}")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises BenchFailed: the file could not be written, whatever the reason."""
    try:
        yield
    except OSError as error:
        raise BenchFailed(f"{path} cannot be written ({error.strerror or error}); name a file elsewhere") from error


def _try(path: Path) -> None:
    """Find out by writing, as permissions alone do not tell, and leave everything as it was.

    Raises:
        OSError: a file cannot be written there.
        BenchFailed: there is a folder of that name, or none to write into.
    """
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise BenchFailed(f"{path} cannot be written: name a file in a folder that exists")
    if path.is_file():
        path.open("ab").close()
    elif not path.exists():
        TemporaryFile(dir=path.absolute().parent).close()
    elif not os.access(path, os.W_OK):  # a pipe or a device is not opened: its reader would take that for the report
        raise BenchFailed(f"{path} cannot be written: name a file that this user may write")
