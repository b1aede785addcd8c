"""VGG16's distance grows with damage, and KID tells sets of patches apart."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
import torch

from training.evaluate.patch_features import PatchFeatures, kernel_distance
from training.losses.vgg16 import VGG16Features


@pytest.fixture(scope="module")
def vgg():
    torch.manual_seed(0)
    return PatchFeatures(VGG16Features())


def _noise(seed, side=96):
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8)


def test_distance_is_zero_for_the_same_picture_and_grows_with_blur(vgg):
    truth = vgg.extract(_noise(0), None)
    sharp, soft = (vgg.extract(cv2.GaussianBlur(_noise(0), (0, 0), sigma), None) for sigma in (0.6, 3))
    assert vgg.distance(truth, truth) == 0
    assert 0 < vgg.distance(sharp, truth) < vgg.distance(soft, truth)


def test_only_patches_that_are_half_filled_count(vgg):
    hole = np.zeros((96, 96), np.bool_)
    hole[:32, :48] = True  # all of the first patch, half of the second
    hole[40:44] = True
    assert vgg.extract(_noise(0), hole).patches.shape == (2, 256)
    assert vgg.extract(_noise(0), None).patches.shape == (9, 256)


def test_kid_is_near_zero_for_samples_of_one_kind_and_larger_for_another_kind():
    rng = np.random.default_rng(0)

    def patches(shift):
        found = rng.normal(0, 0.02, (60, 256)) + shift
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    kind, other = np.full(256, 0.06), np.concatenate([np.full(128, 0.08), np.full(128, 0.03)])
    assert abs(kernel_distance(patches(kind), patches(kind))) < 0.01
    apart = kernel_distance(patches(other), patches(kind))
    assert apart is not None
    assert apart > 0.1


def test_kid_needs_two_patches_on_each_side():
    assert kernel_distance(np.ones((1, 256)), np.ones((5, 256))) is None
