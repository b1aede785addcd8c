"""Loading of libraries without what only costs time: garbage collections, and rich for logs that do not use it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Turn the garbage collector off until the block ends, if it was on, and exempt from it what the block loaded.

    Nearly everything that an import makes is permanent, and there are about 270 collections while the server is loaded.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_on:
            gc.enable()


@contextmanager
def without_rich() -> Iterator[None]:
    """Load structlog in this block as if rich were not installed: it needs rich only for coloured stacks, unused here.

    Rich, pygments and attrs are a tenth of what a process loads. After the block, rich can be loaded as usual.
    """
    if "rich" in sys.modules:
        yield
        return
    sys.modules["rich"] = None  # type: ignore[assignment] # as Python documents: its import raises ModuleNotFoundError
    try:
        yield
    finally:
        del sys.modules["rich"]
