"""LPIPS version 0.1: the distance of two pictures in the features of AlexNet.

Source: Zhang et al., "The Unreasonable Effectiveness of Deep Features as a Perceptual Metric", CVPR 2018. The
linear heads are those of the authors' package `lpips`; its code is not used because it would download AlexNet.
"""

from __future__ import annotations

import pickle
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from training.errors import DataMissing

_LAYERS = {  # index in torchvision's AlexNet: (inputs, outputs, kernel, stride, padding)
    0: (3, 64, 11, 4, 2),
    3: (64, 192, 5, 1, 2),
    6: (192, 384, 3, 1, 1),
    8: (384, 256, 3, 1, 1),
    10: (256, 256, 3, 1, 1),
}
_POOLED_BEFORE = (3, 6)
_EPSILON = 1e-30
"""Minimum of squared lengths; negligible beside the 1e-10 that the authors add to lengths, so distances are theirs."""
_SHIFT, _SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)


class Lpips(nn.Module):
    """The LPIPS distance; `features` are AlexNet's five convolutions, `heads` the weights of their channels."""

    shift: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shift", torch.tensor(_SHIFT).view(1, 3, 1, 1))
        self.register_buffer("scale", torch.tensor(_SCALE).view(1, 3, 1, 1))
        self.features = nn.ModuleDict({str(index): nn.Conv2d(*shape) for index, shape in _LAYERS.items()})
        self.heads = nn.ParameterList(nn.Parameter(torch.zeros(1, shape[1], 1, 1)) for shape in _LAYERS.values())
        self.requires_grad_(requires_grad=False)

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        """Map N×3×H×W pictures in [-1, 1] to N distances: 0 if identical, near 1 if very different."""
        total = torch.zeros(one.shape[0], device=one.device)
        for head, left, right in zip(self.heads, self._activations(one), self._activations(other), strict=True):
            difference = (_normalise_channels(left) - _normalise_channels(right)).square()
            total = total + (difference * head).sum(1).mean((1, 2))
        return total

    def _activations(self, picture: Tensor) -> list[Tensor]:
        x, found = (picture - self.shift) / self.scale, []
        for index in _LAYERS:
            if index in _POOLED_BEFORE:
                x = F.max_pool2d(x, 3, 2)
            x = F.relu(self.features[str(index)](x))
            found.append(x)
        return found

    def distance(self, one: NDArray[np.uint8], other: NDArray[np.uint8]) -> float:
        """Compute the distance of two 8-bit pictures, H×W×3 RGB."""
        with torch.inference_mode():
            return float(self(_to_tensor(one), _to_tensor(other)))


def _normalise_channels(features: Tensor) -> Tensor:
    """Normalise each pixel's channels to length 1; where all are 0, the gradient is 0 and not infinite."""
    squares = features.square().sum(1, keepdim=True).clamp(min=_EPSILON)
    return features / (squares.sqrt() + 1e-10)


def _to_tensor(pixels: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(pixels.astype(np.float32)).permute(2, 0, 1)[None] / 127.5 - 1


def load_lpips(features: Path, heads: Path | None = None) -> Lpips:
    """Load the distance with AlexNet's weights from a safetensors file in torchvision's layout.

    Args:
        features: the file of AlexNet (ImageNet); the classifier's tensors are ignored.
        heads: lpips/weights/v0.1/alex.pth; that of the installed package `lpips` by default.

    Raises:
        DataMissing: a file is missing or lacks the weights, or `lpips` is not installed.
    """
    if not features.is_file():
        raise DataMissing(f"{features}: no such file; docs/training.md says how to make AlexNet's features")
    net = Lpips()
    try:
        state = load_file(features)
        weights = {key: state[key] for key in net.state_dict() if key.startswith("features.")}
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise DataMissing(f"{features}: not AlexNet's features in torchvision's layout ({error})") from error
    path = heads or _packaged_heads()
    try:
        linear = torch.load(path, map_location="cpu", weights_only=True)
        weights |= {f"heads.{index}": linear[f"lin{index}.model.1.weight"] for index in range(len(_LAYERS))}
        net.load_state_dict(weights, strict=False)
    except (pickle.UnpicklingError, OSError, EOFError, LookupError, RuntimeError, TypeError) as error:
        raise DataMissing(f"{path}: not the linear heads of LPIPS 0.1, or damaged") from error
    return net


def _packaged_heads() -> Path:
    try:
        return Path(str(distribution("lpips").locate_file("lpips/weights/v0.1/alex.pth")))
    except PackageNotFoundError as error:
        raise DataMissing("LPIPS needs the heads in the package lpips: pip install '.[training]'") from error
