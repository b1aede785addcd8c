"""DISTS equals the authors' implementation at their picture size; unsuitable files are named."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from training.errors import DataMissing
from training.losses.dists_distance import Dists, load_dists
from training.losses.vgg16 import VGG16Features

AUTHORS = 0.0898923


def _seeded() -> Dists:
    """Make the net with weights drawn by numpy, which are the same on every platform."""
    random = np.random.default_rng(0)
    net = Dists(VGG16Features(5))
    layers: Any = net.vgg.features
    for layer in layers.values():
        fan = layer.weight[0].numel()
        layer.weight.copy_(torch.from_numpy(random.normal(0, (2 / fan) ** 0.5, layer.weight.shape)))
        layer.bias.zero_()
    for weights in (net.alpha, net.beta):
        weights.copy_(torch.from_numpy(random.uniform(0, 0.02, weights.shape)))
    return net


@pytest.fixture(scope="module")
def net() -> Dists:
    return _seeded()


def _noise(seed, side=64):
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8)


def test_distance_is_that_of_the_authors_code(net):
    # from `forward` of DISTS_pytorch 0.1 with these weights and pictures
    assert net.distance(_noise(1), _noise(2)) == pytest.approx(AUTHORS, abs=2e-6)


def test_distance_is_zero_for_the_same_picture_and_grows_with_blur(net):
    sharp, soft = (cv2.GaussianBlur(_noise(1), (0, 0), sigma) for sigma in (0.6, 3))
    assert net.distance(_noise(1), _noise(1)) == pytest.approx(0, abs=1e-6)
    assert 0 < net.distance(sharp, _noise(1)) < net.distance(soft, _noise(1))


def test_distance_of_a_batch_is_that_of_each(net):
    one, other = (torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    each = [net(one[row : row + 1], other[row : row + 1]).item() for row in range(2)]
    assert net(one, other).tolist() == pytest.approx(each, abs=1e-5)


def test_large_pictures_are_scaled_to_a_shorter_side_of_256(net):
    class Seen(Exception):
        """Raised with the shape that reaches the first layer, before anything is computed."""

    def note(_layer, inputs):
        raise Seen(*inputs[0].shape)

    handle = net.vgg.features["0"].register_forward_pre_hook(note)
    try:
        with pytest.raises(Seen) as seen:
            net.distance(*(np.ascontiguousarray(_noise(seed, 576)[:512]) for seed in (1, 2)))
    finally:
        handle.remove()
    assert seen.value.args == (1, 3, 256, 288)


def test_files_give_the_weights(tmp_path):
    vgg = VGG16Features(5)
    save_file({key: value for key, value in vgg.state_dict().items() if "scale" not in key}, tmp_path / "vgg.st")
    weights = {name: torch.rand(1, 1475, 1, 1) for name in ("alpha", "beta")}
    torch.save(weights, tmp_path / "weights.pt")
    loaded = load_dists(tmp_path / "vgg.st", tmp_path / "weights.pt")
    assert torch.equal(loaded.beta, weights["beta"])
    assert torch.equal(loaded.vgg.features["28"].weight, vgg.features["28"].weight)
    torch.save({"alpha": weights["alpha"]}, tmp_path / "half.pt")
    with pytest.raises(DataMissing, match=r"half\.pt: not weights\.pt of DISTS-pytorch"):
        load_dists(tmp_path / "vgg.st", tmp_path / "half.pt")


def test_vgg16_of_three_blocks_is_not_enough(tmp_path):
    vgg = VGG16Features(3)
    save_file({key: value for key, value in vgg.state_dict().items() if "scale" not in key}, tmp_path / "vgg.st")
    with pytest.raises(DataMissing, match=r"vgg\.st: holds 3 blocks of VGG16 and DISTS needs 5"):
        load_dists(tmp_path / "vgg.st", tmp_path / "weights.pt")
