"""Rows for each result of a request: latents from seeds, which do not depend on the batch, or turned pictures. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from engines.manifest import Manifest
from service.core.batch_rows import Sample
from service.core.pictures import Size
from service.imaging.orientations import ORIENTATIONS, can_turn, turn_back, turn_row

Tile = NDArray[np.uint8]
Draw = Callable[[int, int, int], NDArray[np.float32]]
"""A function of seed, index of the result and length to a latent vector."""


def draw_latent(seed: int, index: int, length: int) -> NDArray[np.float32]:
    """The latent of one result: standard normal numbers from Philox, keyed by the seed and the result's index.

    Result 3 of 8 is the same as result 3 of 4.
    """
    key = np.random.SeedSequence(seed, spawn_key=(index,))
    return np.random.Generator(np.random.Philox(key)).standard_normal(length, np.float32)


def is_diverse(manifest: Manifest) -> bool:
    """Return whether several results of one request differ: the model draws random numbers or can turn its input."""
    return manifest.has_latent or can_turn(manifest)


def rows_of_results(
    rows: Sequence[Sample], manifest: Manifest, drawn: Sequence[tuple[int, int]], draw_one: Draw = draw_latent
) -> list[Sample]:
    """Repeat each row for several results, or give it all latents at once where the model takes several together.

    All crops of one result get the same latent, so that their fills match. Without latents, results differ by the
    orientation in which the model sees the picture.

    Args:
        rows: the rows of one result.
        manifest: the model's, for which `is_diverse` holds if there are several results.
        drawn: the seed and index of each result; not used without latents.
        draw_one: draws a latent.
    """
    spec = manifest.input("latent")
    if spec is None:
        orientations = ORIENTATIONS[: len(drawn)]
        return [turn_row(row, orientation) for orientation in orientations for row in rows]
    latents = [draw_one(seed, index, int(spec.shape[-1])) for seed, index in drawn]
    if manifest.samples_together:
        return [replace(row, arrays={**row.arrays, "latent": np.stack(latents)}, samples=len(latents)) for row in rows]
    return [replace(row, arrays={**row.arrays, "latent": latent}) for latent in latents for row in rows]


def bytes_of_rows(tile: Size, manifest: Manifest, count: int) -> int:
    """Return the memory of the rows of `count` results, image and mask, and of the model's tiles, if each has one tile.

    Rows that differ by their latents share an image; turned ones have their own.
    """
    images = 1 if manifest.has_latent else count
    return tile.height * tile.width * ((manifest.image_channels + 1) * images + manifest.output_channels * count)


def tiles_of_result(tiles: Sequence[Tile], manifest: Manifest, count: int, index: int) -> list[Tile]:
    """Return the upright tiles of one of `count` results, from the tiles of the rows that `rows_of_results` made."""
    if manifest.samples_together:
        return [tile[index] for tile in tiles]
    each = len(tiles) // count
    own = tiles[index * each : (index + 1) * each]
    return list(own) if manifest.has_latent else [turn_back(tile, ORIENTATIONS[index]) for tile in own]
