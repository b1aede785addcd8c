"""Checks before a benchmark that its report files can be written; turns later write errors into BenchFailed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engines.files.outputs import check_output
from retouch.bench.session import BenchFailed

_PLOT_SUFFIXES = (".png", ".svg", ".pdf")


def check_writable(json_file: Path | None, plot: Path | None) -> None:
    """Raise BenchFailed before the runs if a report could not be written after them."""
    for path in (json_file, plot):
        if path:
            with report_write_errors(path):
                _try_write(path)
    if plot and plot.suffix not in _PLOT_SUFFIXES:
        raise BenchFailed(f"{plot} must end in one of {', '.join(_PLOT_SUFFIXES)}")


@contextmanager
def report_write_errors(path: Path) -> Iterator[None]:
    """Turn an OSError of the block into BenchFailed."""
    try:
        yield
    except OSError as error:
        raise BenchFailed(f"{path} cannot be written ({error.strerror or error}); name a file elsewhere") from error


def _try_write(path: Path) -> None:
    """Check by writing, because permissions alone do not tell, and leave everything unchanged.

    Raises:
        OSError: a file cannot be written there.
        BenchFailed: the path is a folder, or its folder does not exist.
    """
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise BenchFailed(f"{path} cannot be written: name a file in a folder that exists")
    if path.exists() and not path.is_file() and not os.access(path, os.W_OK):
        raise BenchFailed(f"{path} cannot be written: name a file that this user may write")
    check_output(path)
