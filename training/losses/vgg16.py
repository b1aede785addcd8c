"""VGG16's frozen convolutions, whose features the perceptual and style losses compare.

Simonyan & Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", 2014; torchvision's layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from export.generators.pconv.unet import ImageNetScale
from training.errors import DataMissing

_BLOCKS = ((0, 2), (5, 7), (10, 12, 14), (17, 19, 21), (24, 26, 28))
_WIDTHS = (64, 128, 256, 512, 512)
_EPSILON = 1e-2
_MIN_BLOCKS = 3
"""Blocks for losses on pooled features; deeper ones are for losses on activations."""


class Features(NamedTuple):
    """The features of a picture in VGG16, by block."""

    activations: list[Tensor]
    """Outputs of each block's last ReLU: N×64×H×W, N×128×H/2×W/2, N×256×H/4×W/4, N×512×H/8×W/8, N×512×H/16×W/16."""
    pooled: list[Tensor]
    """Outputs of the first three blocks after their poolings, half that size."""


class VGG16Features(nn.Module):
    """VGG16's layers `features.0` … `features.28` with ReLU, or their first blocks."""

    def __init__(self, blocks: int = _MIN_BLOCKS) -> None:
        super().__init__()
        self.scale, self.features, channels = ImageNetScale(), nn.ModuleDict(), 3
        self.blocks = _BLOCKS[:blocks]
        for block, width in zip(self.blocks, _WIDTHS, strict=False):
            for index in block:
                self.features[str(index)] = nn.Conv2d(channels, width, 3, padding=1)
                channels = width
        self.requires_grad_(requires_grad=False)

    def forward(self, image: Tensor) -> Features:
        """Compute the features of N×3×H×W in [0, 1]."""
        x, found = self.scale.normalise(image), Features([], [])
        for number, block in enumerate(self.blocks):
            for index in block:
                x = F.relu(self.features[str(index)](x))
            found.activations.append(x)
            if number < max(_MIN_BLOCKS, len(self.blocks) - 1):
                x = F.max_pool2d(x, 2)
            if number < _MIN_BLOCKS:
                found.pooled.append(x)
        return found


class NormalisedFeatures(nn.Module):
    """The last ReLU of each block, scaled to length 1 at every position, so faint texture counts as much as edges."""

    def __init__(self, features: VGG16Features) -> None:
        super().__init__()
        self.features = features

    @property
    def widths(self) -> tuple[int, ...]:
        """The channels of each block's features."""
        return _WIDTHS[: len(self.features.blocks)]

    def forward(self, image: Tensor) -> list[Tensor]:
        """Compute the features of pictures, N×3×H×W in [0, 1]."""
        found = self.features(image).activations
        lengths = [(f.float().square().sum(1, keepdim=True) + _EPSILON).rsqrt() for f in found]
        return [f * length.to(f.dtype) for f, length in zip(found, lengths, strict=True)]


def squared_gaps(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> list[Tensor]:
    """Return the squared distance of features at every position, by block: N×H×W, FP32."""
    return [(f - w).float().square().sum(1) for f, w in zip(found, wanted, strict=True)]


class FeatureDistance(nn.Module):
    """The distance of pictures to given features: squares summed over channels, mean over positions, weighted by block.

    It is a module so that features and distance are compiled together: eager code would read and write the finest
    features once for each operator.
    """

    def __init__(self, features: NormalisedFeatures, weights: Sequence[float]) -> None:
        super().__init__()
        self.features, self.weights = features, tuple(weights)

    def forward(self, picture: Tensor, wanted: Sequence[Tensor]) -> Tensor:
        """Compute the distance of pictures, N×3×H×W in [0, 1], to the features of N others: a scalar, FP32."""
        gaps = squared_gaps(self.features(picture), wanted)
        return torch.stack([weight * gap.mean() for weight, gap in zip(self.weights, gaps, strict=True)]).sum()


def load_features(path: Path, blocks: int | None = None) -> VGG16Features:
    """Load the net on the CPU, with all blocks that the file has or the first `blocks`: at least three.

    Raises:
        DataMissing: the file is missing, is not a safetensors file or lacks a layer; the message says which.
    """
    try:
        state = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise DataMissing(f"{path}: no readable VGG16 features ({error}); is the option `features` right?") from error
    present = sum(f"features.{block[-1]}.weight" in state for block in _BLOCKS)
    if blocks is not None and present < blocks:
        last = _BLOCKS[blocks - 1][-1]
        raise DataMissing(f"{path}: holds {present} blocks of VGG16 instead of {blocks}: features.0 to features.{last}")
    net = VGG16Features(max(_MIN_BLOCKS, present) if blocks is None else blocks)
    try:
        net.load_state_dict({key: state[key] for key in net.state_dict() if not key.startswith("scale.")}, strict=False)
    except (KeyError, RuntimeError) as error:
        raise DataMissing(f"{path}: not VGG16 in torchvision's layout ({error})") from error
    return net
