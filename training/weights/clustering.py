"""Clusters an encoder's features for each class of pix2pixHD: styles that can be drawn without a reference picture.

Wang et al. 2018, section 3.3: K-means over the features of all instances of a class in the training data, K = 10.
As in NVIDIA/pix2pixHD, instances of less than half a cell of a 32×32 grid do not count, unless a class has no larger
one. A class with fewer instances than clusters repeats them, so that each is as likely as another.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from export.generators.family import State
from export.generators.pix2pixhd.encoder import instance_means
from export.generators.pix2pixhd.generator import Pix2PixHD
from training.data.cuts import centre_crops
from training.data.device_cache import PictureCache
from training.data.label_maps import ids_of_pairs
from training.data.pictures import load_pictures
from training.errors import ConfigInvalid
from training.pix2pixhd_config import Pix2PixHDConfig
from training.weights.initial import load_initial

Array = NDArray[np.float32]
_MIN_SHARE = 0.5 / 32**2
_ROUNDS = 50


def cluster_features(config: Pix2PixHDConfig, weights: Path, count: int) -> State:
    """Return the generator's weights with `clusters`, L×count×F, of the features of the config's pictures.

    Raises:
        ConfigInvalid: the config's generator has no encoder.
        CheckpointMismatch: the weights are not those of the config's generator.
        DataMissing: the config's pictures cannot be read.
    """
    options = config.generator
    if not options.features:
        raise ConfigInvalid("generator.features is 0: there is no encoder whose features could be clustered")
    net = Pix2PixHD().build(options)
    load_initial(net, weights, lambda state: Pix2PixHD().translate(state, options).state)
    cache, means, classes, shares = PictureCache(load_pictures(config.data), torch.device("cpu")), [], [], []
    for number in range(cache.count):
        pair = cache.crops(centre_crops(number, number + 1, cache.device), config.data.crop)
        ids = ids_of_pairs(pair)
        instances = ids[:, 1:2] + 256 * ids[:, 2:]
        with torch.no_grad():
            seen = net.eval().get_submodule("encoder")(pair[:, 3:] * 2 - 1)
        features = instance_means(seen, instances)[0].flatten(1).numpy()
        _, first, pixels = np.unique(instances.numpy(), return_index=True, return_counts=True)
        means.append(features.T[first])
        classes.append(ids[0, 0].flatten().numpy()[first])
        shares.append(pixels / instances.numel())
    table = _clusters_by_class(np.concatenate(means), np.concatenate(classes), np.concatenate(shares), config, count)
    return {**net.state_dict(), "clusters": torch.from_numpy(table)}


def _clusters_by_class(
    means: Array, classes: NDArray[Any], shares: NDArray[Any], config: Pix2PixHDConfig, count: int
) -> Array:
    table = np.zeros((config.generator.label_nc, count, means.shape[1]), np.float32)
    for label in np.unique(classes[classes < len(table)]):  # ids that are no class of the net, as in training
        is_large = (classes == label) & (shares >= _MIN_SHARE)
        table[label] = k_means(means[is_large if is_large.any() else classes == label], count, config.seed)
    return table


def k_means(points: Array, count: int, seed: int) -> Array:
    """Return the centres of `count` clusters of points N×F; points are repeated where there are no more of them."""
    distinct: Array = np.unique(points, axis=0)
    if len(distinct) <= count:
        repeated: Array = distinct[np.arange(count) % len(distinct)]
        return repeated
    centres = _first_centres(points, count, np.random.default_rng(seed))
    for _ in range(_ROUNDS):
        nearest = _squares(points, centres).argmin(1)
        moved = [points[nearest == k].mean(0) if (nearest == k).any() else centres[k] for k in range(count)]
        before, centres = centres, np.stack(moved).astype(np.float32)
        if np.array_equal(before, centres):
            break
    return centres


def _first_centres(points: Array, count: int, random: np.random.Generator) -> Array:
    """Draw `count` points, each probably far from the earlier ones (k-means++, Arthur and Vassilvitskii 2007)."""
    centres: Array = points[random.integers(len(points))][None]
    while len(centres) < count:
        gaps = _squares(points, centres).min(1)
        centres = np.concatenate([centres, points[random.choice(len(points), p=gaps / gaps.sum())][None]])
    return centres


def _squares(points: Array, centres: Array) -> NDArray[np.float64]:
    """Return the squared distances N×K."""
    gaps: NDArray[np.float64] = np.square(points[:, None].astype(np.float64) - centres[None]).sum(2)
    return gaps
