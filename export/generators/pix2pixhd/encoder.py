"""pix2pixHD's feature encoder (netE), layout of NVIDIA/pix2pixHD: the features that set the style of each instance.

Wang et al. 2018, section 3.3. Net: a picture N×C×H×W in [-1, 1] to N×F×H×W in [-1, 1], each instance's features
replaced by their mean; H and W multiples of 2^downsamplings.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

_IDS = 65_536
"""Number of instance ids: they come from files of at most 16 bits."""


class EncoderShape(NamedTuple):
    """The arguments of the public `Encoder`."""

    channels: int
    features: int
    width: int
    downsamplings: int


class FeatureEncoder(nn.Module):
    """netE without its pooling: convolutions that downsample and upsample again."""

    def __init__(self, shape: EncoderShape, norm: type[nn.Module]) -> None:
        super().__init__()
        widths = [shape.width * 2**level for level in range(shape.downsamplings)]
        layers: list[nn.Module] = [nn.ReflectionPad2d(3), nn.Conv2d(shape.channels, shape.width, 7)]
        layers += [norm(shape.width), nn.ReLU()]
        for width in widths:
            layers += [nn.Conv2d(width, 2 * width, 3, 2, 1), norm(2 * width), nn.ReLU()]
        for width in reversed(widths):
            layers += [nn.ConvTranspose2d(2 * width, width, 3, 2, 1, output_padding=1), norm(width), nn.ReLU()]
        layers += [nn.ReflectionPad2d(3), nn.Conv2d(shape.width, shape.features, 7), nn.Tanh()]
        self.model = nn.Sequential(*layers)

    def forward(self, picture: Tensor) -> Tensor:
        """Map N×C×H×W in [-1, 1] to N×F×H×W in [-1, 1]."""
        return cast("Tensor", self.model(picture))


def instance_means(features: Tensor, ids: Tensor) -> Tensor:
    """Replace every value by the mean over its instance, separately for each picture.

    Upstream loops over the ids in Python; here they are summed into a table with an entry for each 16-bit id.

    Args:
        features: N×F×H×W float32; an FP16 sum over a large instance would overflow or stop growing.
        ids: N×1×H×W integers; their low 16 bits count.

    Returns:
        N×F×H×W float32.
    """
    values = torch.cat([features, torch.ones_like(features[:, :1])], 1).flatten(2)
    slots = ids.long().remainder(_IDS).flatten(2).expand(-1, values.shape[1], -1)
    table = values.new_zeros(values.shape[0], values.shape[1], _IDS).scatter_add(2, slots, values)
    sums = table.gather(2, slots).view(values.shape[0], values.shape[1], *features.shape[2:])
    return sums[:, :-1] / sums[:, -1:]
