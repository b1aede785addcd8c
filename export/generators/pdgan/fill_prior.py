"""FillNet as PD-GAN's stage 1: its fill inside the picture, so that the generator sees every known pixel as it is."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from export.generators.fillnet.net import FillUNet
from export.generators.fillnet.options import FillNetOptions


class FillPrior(nn.Module):
    """FillNet with the interface of `PriorNet`; the prior is composited."""

    def __init__(self, options: FillNetOptions) -> None:
        super().__init__()
        self.net: nn.Module = FillUNet(options)

    def forward(self, x: Tensor, valid: Tensor) -> Tensor:
        """Map N×3×256×256 in [-1, 1] (holes 0) and N×1×256×256 with 1 = valid to the prior, FP32, not clamped."""
        known, valid = x.float() * valid.float(), valid.float()
        filled = cast("Tensor", self.net(known * 0.5 + 0.5, 1 - valid))
        return known + (filled * 2 - 1) * (1 - valid)
