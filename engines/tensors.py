"""The manifest's symbolic dimensions, made numbers, and how large they get."""

from __future__ import annotations

from engines.base import BatchShape
from engines.manifest import MOST_SAMPLES, Manifest, TensorSpec


def largest_batch(manifest: Manifest, max_batch: int) -> BatchShape:
    """What a GPU engine's memory holds: that many rows of the largest tile, and all the samples of one row."""
    height, width = max(manifest.size.buckets(), key=lambda size: size[0] * size[1])
    rows = most_rows(manifest, max_batch)
    return BatchShape(max(rows, MOST_SAMPLES) if manifest.samples_together else rows, height, width)


def most_rows(manifest: Manifest, max_batch: int) -> int:
    """The most rows of one sample each in a batch: what the service sends, within the model's own limit."""
    return min(max_batch, manifest.max_batch)


def tensor_shape(spec: TensorSpec, shape: BatchShape) -> tuple[int, ...]:
    """The dimensions of a tensor in a batch of that shape."""
    sizes = shape._asdict()
    return tuple(d if isinstance(d, int) else sizes[d] for d in spec.shape)
