"""VGG16 up to pool3, frozen, as the measure of perceptual and style losses.

Simonyan & Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", 2014; torchvision's layout.
"""

from __future__ import annotations

from pathlib import Path

import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from export.generators.pconv import ImageNetScale
from training.errors import DataMissing

_BLOCKS = ((0, 2), (5, 7), (10, 12, 14))
_CHANNELS = {0: (3, 64), 2: (64, 64), 5: (64, 128), 7: (128, 128), 10: (128, 256), 12: (256, 256), 14: (256, 256)}


class VGG16Features(nn.Module):
    """`features.0` … `features.14` with ReLU, and the three poolings' results."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = ImageNetScale()
        self.features = nn.ModuleDict({str(i): nn.Conv2d(*pair, 3, padding=1) for i, pair in _CHANNELS.items()})
        self.requires_grad_(requires_grad=False)

    def forward(self, image: Tensor) -> list[Tensor]:
        """N×3×H×W in [0, 1] to pool1 N×64×H/2×W/2, pool2 N×128×H/4×W/4, pool3 N×256×H/8×W/8."""
        x, pooled = self.scale.normalise(image), []
        for block in _BLOCKS:
            for index in block:
                x = F.relu(self.features[str(index)](x))
            x = F.max_pool2d(x, 2)
            pooled.append(x)
        return pooled


def load_features(path: Path) -> VGG16Features:
    """The net with the file's weights, on the CPU.

    Raises:
        DataMissing: the file is missing, is no safetensors file or lacks a layer; the message says which.
    """
    net = VGG16Features()
    try:
        state = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise DataMissing(f"{path}: no readable VGG16 features ({error}); is the knob `features` right?") from error
    try:
        net.load_state_dict({key: state[key] for key in net.state_dict() if not key.startswith("scale.")}, strict=False)
    except (KeyError, RuntimeError) as error:
        raise DataMissing(f"{path}: not VGG16 in torchvision's layout ({error})") from error
    return net
