"""Distances in VGG16's features: between two pictures, and KID between sets of filled patches.

Sources: Zhang et al., "The Unreasonable Effectiveness of Deep Features as a Perceptual Metric", CVPR 2018 (distances of
features of length 1); Bińkowski et al., "Demystifying MMD GANs", ICLR 2018 (KID).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from numpy.typing import NDArray
from torch import Tensor

from training.evaluate.cases import Pixels
from training.evaluate.holes import Mask
from training.losses.vgg16 import VGG16Features

Patches = NDArray[np.float64]
"""N×256: the mean features of patches."""
PATCH = 32
"""Side of a patch in pixels."""
_MIN_FILLED_PART = 0.5
"""Part of a patch that has to be in the hole for the patch to count."""
_LAYERS = 3
"""relu1_2, relu2_2 and relu3_3: vgg16_pool3.safetensors has no deeper ones."""
_STRIDE = 4
"""Pixels from one position of relu3_3 to the next."""
_EPSILON = 1e-10


class PictureFeatures(NamedTuple):
    """The VGG16 features of a picture: 1×C×H×W for each layer, of length 1 at every position; and its patches."""

    features: list[Tensor]
    patches: Patches


class PatchFeatures:
    """VGG16 up to relu3_3 on 8-bit pictures; deeper blocks of the net are not computed."""

    def __init__(self, net: VGG16Features) -> None:
        self._net = VGG16Features(_LAYERS)
        self._net.load_state_dict(net.state_dict(), strict=False)

    def extract(self, pixels: Pixels, hole: Mask | None) -> PictureFeatures:
        """Compute a picture's features, and those of the patches that are at least half in the hole.

        Without a hole all patches count. Patches are cells of a grid of `PATCH` pixels from the top left corner.
        """
        with torch.inference_mode():
            image = torch.from_numpy(pixels.astype(np.float32)).permute(2, 0, 1)[None] / 255
            features = [_unit(layer) for layer in self._net(image).activations[:_LAYERS]]
            pooled = F.avg_pool2d(features[-1], PATCH // _STRIDE)[0].flatten(1).T
            filled = np.ones(pixels.shape[:2], np.bool_) if hole is None else hole
            parts = F.avg_pool2d(torch.from_numpy(filled.astype(np.float32))[None], PATCH)[0].flatten()
        return PictureFeatures(features, pooled[parts >= _MIN_FILLED_PART].double().numpy())

    @staticmethod
    def distance(one: PictureFeatures, other: PictureFeatures) -> float:
        """Compute the VGG distance: squared differences, sum over channels, mean over positions, sum over layers."""
        pairs = zip(one.features, other.features, strict=True)
        return float(sum((left - right).square().sum(1).mean() for left, right in pairs))


def kernel_distance(one: Patches, other: Patches) -> float | None:
    """Compute KID: the squared maximum mean discrepancy (unbiased) under the kernel (x·y + 1)³.

    Features have a length of at most 1 here, so x·y is not divided by their number. Values near 0, also slightly
    negative ones, mean that the two sets cannot be distinguished. None if a set has fewer than two patches.
    """
    if min(len(one), len(other)) < 2:
        return None
    within = sum(_mean_of_pairs(patches) for patches in (one, other))
    return float(within - 2 * ((one @ other.T + 1) ** 3).mean())


def _mean_of_pairs(patches: Patches) -> float:
    """Average the kernel over all pairs of different patches."""
    kernel = (patches @ patches.T + 1) ** 3
    count = len(patches)
    return float((kernel.sum() - np.trace(kernel)) / (count * (count - 1)))


def _unit(features: Tensor) -> Tensor:
    return features * (features.square().sum(1, keepdim=True) + _EPSILON).rsqrt()
