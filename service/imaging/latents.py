"""Seeds to latents: which random numbers each sample of a request gets, whatever it is batched with. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from engines.manifest import Manifest
from service.core.samples import Sample

Tile = NDArray[np.uint8]
Draw = Callable[[int, int, int], NDArray[np.float32]]
"""Seed, index of the sample and length to a latent."""


def draw(seed: int, index: int, length: int) -> NDArray[np.float32]:
    """The standard normal latent of one sample: Philox, keyed by the seed and the sample's index.

    Sample 3 of 8 is the same as sample 3 of 4: how many are asked for does not matter.
    """
    key = np.random.SeedSequence(seed, spawn_key=(index,))
    return np.random.Generator(np.random.Philox(key)).standard_normal(length, np.float32)


def with_latents(
    rows: Sequence[Sample], manifest: Manifest, seed: int, count: int, draw_one: Draw = draw
) -> list[Sample]:
    """The rows of `count` samples: each row `count` times, or once with all latents where the model takes several.

    All crops of one sample get the same latent, so that its holes suit each other.
    """
    spec = manifest.input("latent")
    if spec is None:
        return list(rows)
    latents = [draw_one(seed, index, int(spec.shape[-1])) for index in range(count)]
    if manifest.samples_together:
        return [replace(row, arrays={**row.arrays, "latent": np.stack(latents)}, samples=count) for row in rows]
    return [replace(row, arrays={**row.arrays, "latent": latent}) for latent in latents for row in rows]


def by_sample(tiles: Sequence[Tile], manifest: Manifest, count: int) -> list[list[Tile]]:
    """What came back for the rows of `with_latents`, sorted into the tiles of each sample."""
    if manifest.samples_together:
        return [[tile[index] for tile in tiles] for index in range(count)]
    each = len(tiles) // count
    return [list(tiles[index * each : (index + 1) * each]) for index in range(count)]
