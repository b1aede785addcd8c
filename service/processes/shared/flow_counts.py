"""The samples that an engine process has not answered, by flow, in shared memory: it writes, front ends read.

There is a cell for each priority and each of some hashes of the client, so that two clients may count as one; a sample
then seems to wait behind more of its own client's than it does.
"""

from __future__ import annotations

from collections import Counter
from zlib import crc32

import numpy as np

from service.core.flow import HIGHEST_PRIORITY, Flow

_HASHES = 256
"""Many, because a quiet client that shares its hash with a busy one is refused because of it, whenever it asks."""
CELLS = (HIGHEST_PRIORITY + 1) * _HASHES


class FlowCounts:
    """The counts of one engine process.

    Args:
        cells: `CELLS` numbers, zero at first, shared by all processes.
    """

    def __init__(self, cells: memoryview[float]) -> None:
        self._counts = np.frombuffer(cells.cast("B"), np.float64)

    def add(self, flow: Flow, count: int) -> None:
        """Count more samples of a flow, or fewer; only the engine process does."""
        self._counts[flow.priority * _HASHES + _hash_of(flow)] += count

    def clear(self) -> None:
        """Set all counts to zero."""
        self._counts[:] = 0

    def add_to(self, total: Counter[Flow]) -> None:
        """Add the counts to those of other engine processes, by flows as `hashed` makes them."""
        counts = self._counts.copy()  # flatnonzero raises if the number of zeros changes while it runs
        for cell in np.flatnonzero(counts).tolist():
            priority, client = divmod(cell, _HASHES)
            total[Flow(str(client), priority)] += int(counts[cell])


def hashed(flow: Flow) -> Flow:
    """Return the flow under which its samples are counted."""
    return Flow(str(_hash_of(flow)), flow.priority)


def _hash_of(flow: Flow) -> int:
    return crc32(flow.client.encode()) % _HASHES
