"""Loads many files by threads, and names all that cannot be used in one error, so that one run finds them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from training.errors import DataMissing

_MAX_NAMED = 20
FileT = TypeVar("FileT")
LoadedT = TypeVar("LoadedT")


def load_all(load: Callable[[FileT], LoadedT], files: Iterable[FileT], threads: int = 0) -> list[LoadedT]:
    """Return `load` of each file, in order.

    Args:
        load: raises DataMissing, with the file's name, for a file that cannot be used.
        files: what `load` takes.
        threads: how many load at a time; 0 for as many as the host has cores.

    Raises:
        DataMissing: some files cannot be used; the message has a line for each of the first 20, and counts the rest.
    """

    def attempt(file: FileT) -> LoadedT | DataMissing:
        try:
            return load(file)
        except DataMissing as error:
            return error

    with ThreadPoolExecutor(threads or os.cpu_count() or 1) as pool:
        found = list(pool.map(attempt, files))
    faults = [one for one in found if isinstance(one, DataMissing)]
    if len(faults) == 1:
        raise faults[0]
    if faults:
        more = f"\nand {len(faults) - _MAX_NAMED} more" if len(faults) > _MAX_NAMED else ""
        named = "\n".join(map(str, faults[:_MAX_NAMED]))
        raise DataMissing(f"{len(faults)} of {len(found)} files cannot be used:\n{named}{more}")
    return [one for one in found if not isinstance(one, DataMissing)]
