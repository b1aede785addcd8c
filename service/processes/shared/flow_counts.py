"""Numbers of samples that an engine process has not answered, by flow, in shared memory that only it writes.

There is a cell for each priority and each of `_HASHES` hashes of the client. Two clients with the same hash count as
one, so that a client seems to have more waiting samples of its own than it has.
"""

from __future__ import annotations

from collections import Counter
from zlib import crc32

import numpy as np

from service.core.flow import MAX_PRIORITY, Flow

_HASHES = 256
"""Number of hashes; large, because a quiet client with the same hash as a busy one may be refused because of it."""
CELLS = (MAX_PRIORITY + 1) * _HASHES


class FlowCounts:
    """The counts of one engine process.

    Args:
        cells: `CELLS` numbers in shared memory, initially zero.
    """

    def __init__(self, cells: memoryview[float]) -> None:
        self._counts = np.frombuffer(cells.cast("B"), np.float64)

    def add(self, flow: Flow, count: int) -> None:
        """Add `count`, which may be negative, to a flow's samples; called only by the engine process."""
        self._counts[flow.priority * _HASHES + _hash_of(flow)] += count

    def clear(self) -> None:
        """Set all counts to zero."""
        self._counts[:] = 0

    def add_to(self, total: Counter[Flow]) -> None:
        """Add the counts to `total`, under the flows that `hashed` returns."""
        counts = self._counts.copy()  # np.flatnonzero raises if the number of zeros changes while it runs
        for cell in np.flatnonzero(counts).tolist():
            priority, client = divmod(cell, _HASHES)
            total[Flow(str(client), priority)] += int(counts[cell])


def hashed(flow: Flow) -> Flow:
    """Return the flow under which its samples are counted."""
    return Flow(str(_hash_of(flow)), flow.priority)


def _hash_of(flow: Flow) -> int:
    return crc32(flow.client.encode()) % _HASHES
