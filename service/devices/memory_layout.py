"""Layout of several arrays in one block of memory. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

_ALIGNMENT = 256
"""Bytes: required for memory of a GPU, and a multiple of a CPU's cache line."""


@dataclass(frozen=True, slots=True)
class ArrayRegion:
    """A dense array at `offset` bytes of a block."""

    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(slots=True)
class LayoutBuilder:
    """Places arrays one after another in a block, aligned; `size` is the block's size in bytes so far."""

    size: int = 0

    def add(self, name: str, shape: tuple[int, ...], dtype: str) -> ArrayRegion:
        part = ArrayRegion(name, self.size, shape, dtype)
        self.size += -(-part.nbytes // _ALIGNMENT) * _ALIGNMENT
        return part
