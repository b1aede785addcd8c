"""Finds near-duplicates of pictures by their fingerprints."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BIT_COUNTS = np.array([bin(byte).count("1") for byte in range(256)], np.uint8)


class NearDuplicateSet:
    """A set of 64-bit fingerprints; `in` tells whether one of them differs in at most `max_bits` bits."""

    def __init__(self, max_bits: int) -> None:
        self._max_bits = max_bits
        self._seen: NDArray[np.uint64] = np.empty(1024, np.uint64)
        self._count = 0

    def add(self, fingerprint: int) -> None:
        if self._count == len(self._seen):
            self._seen = np.concatenate([self._seen, np.empty_like(self._seen)])
        self._seen[self._count] = fingerprint
        self._count += 1

    def __contains__(self, fingerprint: int) -> bool:
        differing = self._seen[: self._count] ^ np.uint64(fingerprint)
        bits = _BIT_COUNTS[differing.view(np.uint8)].reshape(-1, 8).sum(axis=1)
        return bool((bits <= self._max_bits).any())
