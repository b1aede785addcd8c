"""The files that a benchmark writes its reports to."""

from __future__ import annotations

from pathlib import Path

from retouch.bench.session import BenchFailed

_PLOT_SUFFIXES = (".png", ".svg", ".pdf")


def refuse_unwritable(json_file: Path | None, plot: Path | None) -> None:
    """Raises BenchFailed: a report could not be written in the end; better to know before the runs."""
    for path in (json_file, plot):
        if path and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise BenchFailed(f"{path} cannot be written: name a file in a folder that exists")
    if plot and plot.suffix not in _PLOT_SUFFIXES:
        raise BenchFailed(f"{plot} must end in one of {', '.join(_PLOT_SUFFIXES)}")
