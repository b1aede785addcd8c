"""Seeded test inputs for comparing precisions: pictures with a photograph's spectrum and edges.

They are generated because no photograph may be at hand where an engine is built. Ordinary, empty and full masks are all
included because a partial convolution divides by the mask's sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engines.base import Array, Feed
from engines.manifest import Manifest, TensorSpec

_SEED = 20180420
_PROBE_BATCH = 2


def probe_feeds(manifest: Manifest) -> Iterator[tuple[str, Feed]]:
    """Yield named feeds in the smallest tile size: `ordinary`, and for a model with a mask also `empty` and `full`."""
    feed = _ordinary_feed(manifest, min(_PROBE_BATCH, manifest.max_batch), next(manifest.size.tile_sizes()))
    yield "ordinary", feed
    if "mask" in feed:
        yield "empty", {**feed, "mask": np.zeros_like(feed["mask"])}
        yield "full", {**feed, "mask": np.ones_like(feed["mask"])}


def single_row_probe_feeds(manifest: Manifest, tiles: Iterable[tuple[int, int]]) -> Iterator[tuple[str, Feed]]:
    """Yield a named feed of one row for each tile (height, width), as in `lone 256×256`."""
    for height, width in tiles:
        yield f"lone {width}×{height}", _ordinary_feed(manifest, 1, (height, width))


def smallest_and_largest_tiles(manifest: Manifest) -> list[tuple[int, int]]:
    """Return the smallest and the largest (height, width) that the service sends; one if they are the same."""
    tiles = list(manifest.size.tile_sizes())
    return list(dict.fromkeys((tiles[0], max(tiles, key=lambda size: size[0] * size[1]))))


def _ordinary_feed(manifest: Manifest, batch: int, tile: tuple[int, int]) -> dict[str, Array]:
    sizes = {"batch": batch, "samples": 1, "height": tile[0], "width": tile[1]}
    rng = np.random.default_rng(_SEED)
    return {spec.name: _draw_array(spec, sizes, rng) for spec in manifest.inputs}


def _draw_array(spec: TensorSpec, sizes: dict[str, int], rng: np.random.Generator) -> Array:
    shape = [d if isinstance(d, int) else sizes[d] for d in spec.shape]
    if spec.name == "latent":
        return rng.standard_normal(shape, np.float32)
    batch, channels, height, width = shape
    if spec.name == "mask":
        return np.stack([_draw_hole(height, width, rng) for _ in range(batch)])[:, None].astype(np.float32)
    if spec.name in {"image", "reference"}:
        return np.stack([_draw_picture(channels, height, width, rng) for _ in range(batch)])
    blocks = rng.integers(0, spec.classes or 2, (batch, 1, -(-height // 8), -(-width // 8)))
    return np.repeat(np.repeat(blocks, 8, 2), 8, 3)[:, :, :height, :width].astype(spec.dtype)


def _draw_picture(channels: int, height: int, width: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return C×H×W in [0, 1]: noise with amplitude 1/f, mostly shared by the channels, and flat rectangles."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None])
    amplitude = 1 / np.maximum(frequency, 1 / max(height, width))
    planes = np.fft.irfft2(
        np.fft.rfft2(rng.standard_normal((channels + 1, height, width))) * amplitude, (height, width)
    )
    picture: NDArray[Any] = planes[:1] + 0.3 * planes[1:]
    picture = 0.5 + 0.2 * (picture - picture.mean()) / (picture.std() + 1e-9)
    for _ in range(6):
        top, left = rng.integers(0, height), rng.integers(0, width)
        bottom, right = top + rng.integers(1, height // 3 + 2), left + rng.integers(1, width // 3 + 2)
        picture[:, top:bottom, left:right] = rng.random((channels, 1, 1))
    clipped: NDArray[np.float32] = np.clip(picture, 0, 1).astype(np.float32)
    return clipped


def _draw_hole(height: int, width: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return an H×W mask: an ellipse and a stroke, about a quarter of the area."""
    rows, columns = np.mgrid[0:height, 0:width]
    y, x = rng.uniform(0.3, 0.7, 2)
    ellipse = ((rows / height - y) / 0.22) ** 2 + ((columns / width - x) / 0.3) ** 2 <= 1
    stroke = np.abs(rows / height - columns / width) < 0.03
    return np.asarray(ellipse | stroke)
