"""The manifest's symbolic dimensions, made numbers."""

from __future__ import annotations

from engines.base import BatchShape
from engines.manifest import TensorSpec


def tensor_shape(spec: TensorSpec, shape: BatchShape) -> tuple[int, ...]:
    """The dimensions of a tensor in a batch of that shape."""
    sizes = shape._asdict()
    return tuple(d if isinstance(d, int) else sizes[d] for d in spec.shape)
