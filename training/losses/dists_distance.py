"""DISTS: the distance of two pictures in structure and texture, in the features of VGG16.

Source: Ding et al., "Image Quality Assessment: Unifying Structure and Texture Similarity", 2020. The weights of the
channels are those of the authors' package `DISTS-pytorch` (MIT); its code is not used because it would download VGG16.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from numpy.typing import NDArray
from torch import Tensor, nn

from training.errors import DataMissing
from training.losses.vgg16 import VGG16Features, load_features

_BLOCKS = 5
_CHANNELS = (3, 64, 128, 256, 512, 512)
"""Channels of the picture itself and of each block's last layer."""
_SIDE = 256
"""Larger pictures are scaled until their shorter side has this many pixels, as the authors do."""
_EPSILON = 1e-6
_POOL_EPSILON = 1e-12


class Dists(nn.Module):
    """The DISTS distance; `alpha` weighs the channels' means and `beta` their structure, 1×1475×1×1 each."""

    window: Tensor

    def __init__(self, vgg: VGG16Features) -> None:
        super().__init__()
        self.vgg = vgg
        side = np.hanning(5)[1:-1]
        self.register_buffer("window", torch.from_numpy(np.outer(side, side) / side.sum() ** 2).float()[None, None])
        self.alpha = nn.Parameter(torch.ones(1, sum(_CHANNELS), 1, 1))
        self.beta = nn.Parameter(torch.ones(1, sum(_CHANNELS), 1, 1))
        self.requires_grad_(requires_grad=False)

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        """Map N×3×H×W pictures in [0, 1] to N distances: 0 if identical, near 1 if very different."""
        total = self.alpha.sum() + self.beta.sum()
        alphas, betas = (
            torch.split(weights, list(_CHANNELS), 1) for weights in (self.alpha / total, self.beta / total)
        )
        alike = torch.zeros(one.shape[0], device=one.device)
        for alpha, beta, left, right in zip(alphas, betas, self._features(one), self._features(other), strict=True):
            a, b = (features.mean((2, 3), keepdim=True) for features in (left, right))
            spread = (left - a).square().mean((2, 3), keepdim=True) + (right - b).square().mean((2, 3), keepdim=True)
            covariance = (left * right).mean((2, 3), keepdim=True) - a * b
            texture = (2 * a * b + _EPSILON) / (a.square() + b.square() + _EPSILON)
            structure = (2 * covariance + _EPSILON) / (spread + _EPSILON)
            alike = alike + (alpha * texture + beta * structure).sum((1, 2, 3))
        return 1 - alike

    def _features(self, picture: Tensor) -> list[Tensor]:
        """Return the picture and the output of each block; between blocks L2 pooling halves the size."""
        x, found = self.vgg.scale.normalise(picture), [picture]
        for number, block in enumerate(self.vgg.blocks):
            if number:
                window = self.window.expand(x.shape[1], -1, -1, -1)
                squares = F.conv2d(x.square(), window, stride=2, padding=1, groups=x.shape[1])
                x = (squares + _POOL_EPSILON).sqrt()
            for index in block:
                x = F.relu(self.vgg.features[str(index)](x))
            found.append(x)
        return found

    def distance(self, one: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
        """Compute the distance of two 8-bit pictures, H×W×3 RGB; large ones are shrunk first."""
        with torch.inference_mode():
            return float(self(_to_tensor(one), _to_tensor(other)))


def _to_tensor(pixels: NDArray[np.uint8]) -> Tensor:
    scale = _SIDE / min(pixels.shape[:2])
    if scale < 1:
        size = round(pixels.shape[1] * scale), round(pixels.shape[0] * scale)
        pixels = np.asarray(cv2.resize(pixels, size, interpolation=cv2.INTER_AREA), np.uint8)
    return torch.from_numpy(pixels.astype(np.float32)).permute(2, 0, 1)[None] / 255


def load_dists(features: Path, weights: Path) -> Dists:
    """Load the distance.

    Args:
        features: the file of VGG16 (ImageNet), all five blocks, safetensors in torchvision's layout.
        weights: `DISTS_pytorch/weights.pt` of the package.

    Raises:
        DataMissing: a file is missing, holds something else, or has fewer blocks.
    """
    vgg = load_features(features)
    if len(vgg.blocks) < _BLOCKS:
        raise DataMissing(
            f"{features}: holds {len(vgg.blocks)} blocks of VGG16 and DISTS needs {_BLOCKS}, features.0 to .28; "
            "give such a file, or no --dists-weights"
        )
    net = Dists(vgg)
    try:
        found = torch.load(weights, map_location="cpu", weights_only=True)
        net.load_state_dict({name: found[name] for name in ("alpha", "beta")}, strict=False)
    except (pickle.UnpicklingError, OSError, EOFError, LookupError, RuntimeError, TypeError) as error:
        raise DataMissing(f"{weights}: not weights.pt of DISTS-pytorch 0.1, or damaged") from error
    return net
