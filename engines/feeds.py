"""Validates feeds against the manifest, so that every engine refuses the same batches with the same message."""

from __future__ import annotations

from engines.base import Array, BatchShape, Feed
from engines.errors import EngineFailed
from engines.manifest import FixedSize, Manifest, TensorSpec


def batch_shape(manifest: Manifest, feed: Feed) -> BatchShape:
    """Check a feed and return its shape.

    Raises:
        EngineFailed: the feed does not match the manifest; the message names the input and both shapes.
    """
    expected = {spec.name for spec in manifest.inputs}
    if set(feed) != expected:
        raise EngineFailed(f"{manifest.key}: the feed has {sorted(feed)}, the model takes {sorted(expected)}")
    sizes = dict(zip(("height", "width"), next(manifest.size.tile_sizes()), strict=True))
    sizes["batch"] = next(iter(feed.values())).shape[0] if feed else 1
    sizes["samples"] = feed["latent"].shape[1] if manifest.samples_together and feed["latent"].ndim == 3 else 1
    if (image_like := next((spec for spec in manifest.inputs if len(spec.shape) == 4), None)) is not None:
        array = feed[image_like.name]
        if array.ndim == 4:
            sizes["height"], sizes["width"] = array.shape[2:]
    for spec in manifest.inputs:
        _check_array(manifest, spec, feed[spec.name], sizes)
    shape = BatchShape(**sizes)
    _check_size(manifest, shape)
    return shape


def _check_array(manifest: Manifest, spec: TensorSpec, array: Array, sizes: dict[str, int]) -> None:
    wanted = tuple(d if isinstance(d, int) else sizes[d] for d in spec.shape)
    if array.shape != wanted or array.dtype != spec.dtype:
        raise EngineFailed(
            f"{manifest.key}: {spec.name} is {array.dtype} {array.shape}, the model takes {spec.dtype} {wanted}"
        )
    if not array.flags.c_contiguous:
        raise EngineFailed(f"{manifest.key}: {spec.name} is not C-contiguous; pass np.ascontiguousarray of it")


def _check_size(manifest: Manifest, shape: BatchShape) -> None:
    if not 1 <= shape.batch <= manifest.max_batch:
        raise EngineFailed(f"{manifest.key}: a batch of {shape.batch}; the model takes 1 to {manifest.max_batch}")
    if shape.samples < 1:
        raise EngineFailed(f"{manifest.key}: a latent of no samples; the model takes at least 1")
    rule = manifest.size
    if isinstance(rule, FixedSize):
        if (shape.height, shape.width) != (rule.height, rule.width):
            raise EngineFailed(
                f"{manifest.key}: tiles of {shape.width}×{shape.height}; the model takes {rule.width}×{rule.height}"
            )
    elif shape.height < 1 or shape.width < 1 or shape.height % rule.multiple_of or shape.width % rule.multiple_of:
        raise EngineFailed(
            f"{manifest.key}: tiles of {shape.width}×{shape.height}; the model takes multiples of {rule.multiple_of}"
        )
