"""Values of the manifest's symbolic dimensions: tensor shapes and the largest batch."""

from __future__ import annotations

from engines.base import BatchShape
from engines.manifest import MAX_SAMPLES, Manifest, TensorSpec


def max_shape(manifest: Manifest, max_batch: int) -> BatchShape:
    """Return the batch that a GPU engine allocates for: rows of the largest tile, and all samples of one row."""
    height, width = max(manifest.size.tile_sizes(), key=lambda size: size[0] * size[1])
    rows = max_rows(manifest, max_batch)
    return BatchShape(max(rows, MAX_SAMPLES) if manifest.samples_together else rows, height, width)


def max_rows(manifest: Manifest, max_batch: int) -> int:
    """Return the most rows of one sample each in a batch: the service's limit or the model's, whichever is lower."""
    return min(max_batch, manifest.max_batch)


def tensor_shape(spec: TensorSpec, shape: BatchShape) -> tuple[int, ...]:
    """Return the dimensions of a tensor in a batch of that shape."""
    sizes = shape._asdict()
    return tuple(d if isinstance(d, int) else sizes[d] for d in spec.shape)
