"""PD-GAN's second stage: the SPDNorm generator, which fills a hole differently for each latent (see generator.py)."""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

from export.lowering import lower_norms

SIDE = 256
MIN_SIDE = 4
_UNITS = ((16, 16, 2, 3), (16, 16, 3, 3), (16, 8, 4, 3), (8, 4, 5, 3), (4, 2, 6, 5), (2, 1, 7, 5))
"""Channels in and out (times ngf), dilations, kernel of the dilation."""


class SpectralConv2d(nn.Module):
    """A convolution with torch's old spectral norm hook: weight_orig/σ with the stored u and v, σ = u·W·v."""

    weight_u: Tensor
    weight_v: Tensor

    def __init__(self, into: int, out: int, kernel: int, *, bias: bool = True) -> None:
        super().__init__()
        self.padding = kernel // 2
        self.weight_orig = nn.Parameter(torch.empty(out, into, kernel, kernel))
        self.bias = nn.Parameter(torch.empty(out)) if bias else None
        self.register_buffer("weight_u", torch.empty(out))
        self.register_buffer("weight_v", torch.empty(into * kernel * kernel))

    def weight(self) -> Tensor:
        """Return the normalised weight."""
        return self.weight_orig / torch.dot(self.weight_u, torch.mv(self.weight_orig.flatten(1), self.weight_v))

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to N×C'×H×W."""
        return F.conv2d(x, self.weight(), self.bias, 1, self.padding)


def _fold_spectral_norm(conv: SpectralConv2d) -> nn.Conv2d:
    weight = conv.weight().detach()
    out, into, kernel, _ = weight.shape
    plain = nn.Conv2d(into, out, kernel, padding=conv.padding, device="meta")
    plain.weight = nn.Parameter(weight.clone(), requires_grad=False)
    plain.bias = None if conv.bias is None else nn.Parameter(conv.bias.detach().clone(), requires_grad=False)
    return plain


def _repeat_rows(values: Tensor, rows: Tensor | None) -> Tensor:
    """Repeat values, computed once per picture, for each sample of the picture."""
    return values if rows is None else values.index_select(0, rows)


class SPDNorm(nn.Module):
    """Normalises each pixel over its channels, then scales and shifts by the prior, weighted by the map w."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mlp_activate = nn.Sequential(nn.Conv2d(3, 128, 3, 1, 1), nn.ReLU())
        self.mlp_gamma = nn.Conv2d(128, channels, 3, 1, 1)
        self.mlp_beta = nn.Conv2d(128, channels, 3, 1, 1)

    def forward(self, x: Tensor, prior: Tensor, w: Tensor, rows: Tensor | None = None) -> Tensor:
        """Map B×C×H×W with the prior N×3×H×W and w (B×C or B×1)×H×W; `rows` is the index of each sample's prior."""
        wide = x.float()
        centred = wide - wide.mean(1, keepdim=True)
        variance = centred.square().sum(1, keepdim=True) / (x.shape[1] - 1)
        normal = (centred / torch.sqrt(variance + 1e-5)).to(x.dtype)
        hidden = self.mlp_activate(prior)
        gamma, beta = (_repeat_rows(mlp(hidden), rows) for mlp in (self.mlp_gamma, self.mlp_beta))
        return normal * (1 + gamma * w) + beta * w


class MaskConv(nn.Module):
    """Dilates a mask as the public code does: valid if any pixel under the kernel is."""

    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.mask_conv = nn.Conv2d(1, 1, kernel, 1, kernel // 2, bias=False)

    def forward(self, mask: Tensor) -> Tensor:
        """Map an N×1×H×W mask of 0 and 1 to its dilation."""
        reached: Tensor = self.mask_conv(mask)
        return (reached != 0).to(mask.dtype)


class MaxDilation(nn.Module):
    """The same dilation as a maximum pooling, for the graph."""

    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, mask: Tensor) -> Tensor:
        """Map an N×1×H×W mask of 0 and 1 to its dilation."""
        return F.max_pool2d(mask, self.kernel, 1, self.kernel // 2)


class SPDNormBlock(nn.Module):
    """A residual block with hard (distance to the hole's edge) and soft (learnt) probabilistic diversity."""

    conv_0: nn.Module
    conv_1: nn.Module
    conv_s: nn.Module
    mask_conv: nn.Module

    def __init__(self, into: int, out: int, dilations: int, kernel: int) -> None:
        super().__init__()
        self.dilations = dilations
        self.v = nn.Parameter(torch.zeros(1))  # present in every file, never used
        self.conv_0, self.conv_1 = SpectralConv2d(into, out, 3), SpectralConv2d(out, out, 3)
        self.conv_s = SpectralConv2d(into, out, 1, bias=False)
        self.norm_0, self.norm_1, self.norm_s = SPDNorm(into), SPDNorm(out), SPDNorm(into)
        self.mask_conv = MaskConv(kernel)
        features = [nn.Conv2d(3, 128, 3, 1, 1), nn.InstanceNorm2d(128), nn.ReLU(), nn.Conv2d(128, into, 3, 1, 1)]
        self.conv_to_f = nn.Sequential(*features)
        self.attention = nn.Sequential(nn.Conv2d(2 * into, into, 3, 1, 1), nn.Sigmoid())

    def forward(self, x: Tensor, prior: Tensor, valid: Tensor, rows: Tensor | None) -> Tensor:
        """Map B×C×H×H; prior N×3×256×256; valid N×1×256×256, FP32; `rows` is the index of each sample's picture."""
        step = SIDE // x.shape[2]
        prior, valid = prior[:, :, ::step, ::step], valid[:, :, ::step, ::step]  # nearest neighbour, at integer steps
        hard, m = (_repeat_rows(t.to(x.dtype), rows) for t in (self._hard_weights(valid), valid))
        soft = self.attention(torch.cat([_repeat_rows(self.conv_to_f(prior), rows), x], 1)) * (1 - m) + m
        y = self.conv_0(F.leaky_relu(self.norm_0(x, prior, hard, rows), 0.2))
        y = self.conv_1(F.leaky_relu(self.norm_1(y, prior, hard, rows), 0.2))
        return cast("Tensor", self.conv_s(self.norm_s(x, prior, soft, rows)) + y)

    def _hard_weights(self, valid: Tensor) -> Tensor:
        total, reached = valid, valid
        for distance in range(1, self.dilations + 1):
            wider = self.mask_conv(reached)
            total = total + (wider - reached) * math.exp(-distance)
            reached = wider
        return total + (1 - reached) * math.exp(-self.dilations)


class UpsamplingUnit(nn.Module):
    """A block and the ×2 upsampling after it."""

    def __init__(self, into: int, out: int, dilations: int, kernel: int) -> None:
        super().__init__()
        self.block = SPDNormBlock(into, out, dilations, kernel)
        self.up = nn.ConvTranspose2d(out, out, 4, 2, 1)

    def forward(self, x: Tensor, prior: Tensor, valid: Tensor, rows: Tensor | None) -> Tensor:
        """Map features to twice their size."""
        return cast("Tensor", self.up(self.block(x, prior, valid, rows)))


class SPDNormGenerator(nn.Module):
    """The diverse generator: makes a picture from a latent, guided by the prior.

    With `adds` it makes what is added to the prior instead, so that fills begin with the prior's colours.
    """

    def __init__(self, ngf: int, z_dim: int, *, adds: bool = False) -> None:
        super().__init__()
        self.widest, self.adds = 16 * ngf, adds
        self.fc = nn.Linear(z_dim, self.widest * MIN_SIDE**2)
        self.generated = nn.ModuleList(
            UpsamplingUnit(into * ngf, out * ngf, n, kernel) for into, out, n, kernel in _UNITS
        )
        self.conv_img = nn.Conv2d(ngf, 3, 3, 1, 1)

    def forward(self, latent: Tensor, prior: Tensor, valid: Tensor, rows: Tensor | None = None) -> Tensor:
        """Map latent B×Z, prior N×3×256×256 in [-1, 1] and valid N×1×256×256 (FP32) to B×3×256×256 in [-1, 1].

        With `adds` the output is FP32 and not clamped. `rows` is the index (of N) of the picture of each sample (of
        B); None if there is one sample per picture.
        """
        x = self.fc(latent).view(-1, self.widest, MIN_SIDE, MIN_SIDE)
        for unit in self.generated:
            x = unit(x, prior, valid, rows)
        made: Tensor = self.conv_img(F.leaky_relu(x, 0.2))
        return _repeat_rows(prior.float(), rows) + made.float() if self.adds else torch.tanh(made)


def lowered_generator(generator: SPDNormGenerator) -> SPDNormGenerator:
    """Copy the generator for the graph: spectral norms folded, dilations by maximum, instance norms in FP32."""
    lowered = lower_norms(generator)
    for unit in lowered.generated:
        block = cast("SPDNormBlock", unit.block)
        block.conv_0, block.conv_1, block.conv_s = (
            _fold_spectral_norm(cast("SpectralConv2d", conv)) for conv in (block.conv_0, block.conv_1, block.conv_s)
        )
        block.mask_conv = MaxDilation(cast("MaskConv", block.mask_conv).mask_conv.kernel_size[0])
    return lowered
