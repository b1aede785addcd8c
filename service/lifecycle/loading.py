"""Loading of libraries without garbage collections.

Nearly everything that an import makes is permanent, and there are about 270 collections while the server is imported.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Turn the garbage collector off until the block ends, if it was on, and exempt from it what the block loaded."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_on:
            gc.enable()
