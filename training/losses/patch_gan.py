"""PatchGAN: scores for every patch of a pair whether its second picture is real (Isola et al. 2017, section 3.2.2).

With 3 layers an output sees 70×70 pixels. Layout as in junyanz/pytorch-CycleGAN-and-pix2pix (`n_layers`).
"""

from __future__ import annotations

from typing import Literal, cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn


class PatchDiscriminator(nn.Module):
    """A discriminator that maps an N×6×H×W pair in [-1, 1] to N×1×H'×W' scores without a sigmoid."""

    def __init__(self, width: int, layers: int, channels: int = 6) -> None:
        super().__init__()
        stages: list[nn.Module] = [nn.Conv2d(channels, width, 4, 2, 1), nn.LeakyReLU(0.2)]
        widths = [width * min(2**layer, 8) for layer in range(layers + 1)]
        for layer in range(1, layers + 1):
            stride = 2 if layer < layers else 1
            conv = nn.Conv2d(widths[layer - 1], widths[layer], 4, stride, 1, bias=False)
            stages += [conv, nn.BatchNorm2d(widths[layer]), nn.LeakyReLU(0.2)]
        self.model = nn.Sequential(*stages, nn.Conv2d(widths[-1], 1, 4, 1, 1))

    def forward(self, pair: Tensor) -> Tensor:
        """Compute scores: above 0 (vanilla) or near 1 (LSGAN) means real."""
        return cast("Tensor", self.model(pair))


def smallest_side(layers: int) -> int:
    """Return the smallest side in pixels that leaves a patch: each layer halves it, two convolutions remove a pixel."""
    return 3 << layers


def adversarial_loss(scores: Tensor, kind: Literal["vanilla", "lsgan"], *, real: bool) -> Tensor:
    """Compute the loss of scores against `real`, an FP32 scalar.

    Cross entropy includes the sigmoid, because in FP16 log(sigmoid(-18)) is log 0.
    """
    scores = scores.float()
    target = torch.full_like(scores, float(real))
    if kind == "vanilla":
        return F.binary_cross_entropy_with_logits(scores, target)
    return F.mse_loss(scores, target)
