"""Where arrays lie in a piece of memory that several of them share. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

_ALIGNMENT = 256
"""Of a GPU's memory; also more than a processor's cache line."""


@dataclass(frozen=True, slots=True)
class Part:
    """An array at `offset`, dense."""

    name: str
    offset: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(slots=True)
class Placing:
    """Places parts one after another."""

    size: int = 0

    def add(self, name: str, shape: tuple[int, ...], dtype: str) -> Part:
        part = Part(name, self.size, shape, dtype)
        self.size += -(-part.nbytes // _ALIGNMENT) * _ALIGNMENT
        return part
