"""PD-GAN: stage 1 (a partial-convolution prior) and the SPDNorm generator, layout of KumapowerLIU/PD-GAN.

Liu et al., "PD-GAN: Probabilistic Diverse GAN for Image Inpainting", CVPR 2021.

Nets:     EN (image N×3×256×256 in [-1, 1] times mask, mask N×3×256×256 with 1 = VALID) feeds DE, which gives the prior;
          PDGAN (latent N×Z, prior, mask) gives the picture in [-1, 1].
Contract: image in [0, 1], mask N×1×256×256 with 1 = FILL, latent N×Z; output in [0, 1], not composited.

Files of EN and DE alone (the published ones: no PDGAN generator was released) give the prior as the picture and take
no latent. Stage 1 divides by what the file's mask convolution sums, which is not all ones in files made by the public
training code. Spectral norms are folded for the graph. The generator's own mask convolutions only ask whether any
pixel under the kernel is valid: a maximum.
"""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from pydantic import Field
from torch import Tensor, nn

from engines.manifest import FixedSize, TensorSpec
from export.generators.family import Bars, Family, GeneratorOptions, Interface, State, Translation, image_tensor
from export.generators.pdgan_prior import PriorNet, lowered_prior
from export.lowering import compute_type, lower_norms

SIDE = 256
SMALLEST = 4
_UNITS = ((16, 16, 2, 3), (16, 16, 3, 3), (16, 8, 4, 3), (8, 4, 5, 3), (4, 2, 6, 5), (2, 1, 7, 5))
"""Channels in and out (times ngf), dilations, kernel of the dilation."""
_PARTS = {"EN": ("Encoder_", "middle."), "DE": ("Decoder_",), "PDGAN": ("fc.", "generated.", "conv_img.")}


class PDGANOptions(GeneratorOptions):
    """What distinguishes nets of this family."""

    prior_width: int = Field(64, ge=1, le=256, description="channels of stage 1's first layer")
    diverse: bool = Field(True, description="with the SPDNorm generator; false: stage 1 alone")
    ngf: int = Field(64, ge=1, le=256, description="channels before the generator's last convolution")
    z_dim: int = Field(256, ge=1, le=4096, description="length of the latent vector")


class SpectralConv2d(nn.Module):
    """A convolution under torch's old spectral norm hook: weight_orig/σ with σ = u·W·v, as stored."""

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
        """The normalised weight."""
        return self.weight_orig / torch.dot(self.weight_u, torch.mv(self.weight_orig.flatten(1), self.weight_v))

    def forward(self, x: Tensor) -> Tensor:
        """N×C×H×W to N×C'×H×W."""
        return F.conv2d(x, self.weight(), self.bias, 1, self.padding)


def _folded(conv: SpectralConv2d) -> nn.Conv2d:
    weight = conv.weight().detach()
    out, into, kernel, _ = weight.shape
    plain = nn.Conv2d(into, out, kernel, padding=conv.padding, device="meta")
    plain.weight = nn.Parameter(weight.clone(), requires_grad=False)
    plain.bias = None if conv.bias is None else nn.Parameter(conv.bias.detach().clone(), requires_grad=False)
    return plain


class SPDNorm(nn.Module):
    """Normalise each pixel over its channels, then scale and shift by the prior as far as the map w lets it through."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mlp_activate = nn.Sequential(nn.Conv2d(3, 128, 3, 1, 1), nn.ReLU())
        self.mlp_gamma = nn.Conv2d(128, channels, 3, 1, 1)
        self.mlp_beta = nn.Conv2d(128, channels, 3, 1, 1)

    def forward(self, x: Tensor, prior: Tensor, w: Tensor) -> Tensor:
        """N×C×H×W, the prior at its size and a map N×1×H×W or N×C×H×W."""
        wide = x.float()
        centred = wide - wide.mean(1, keepdim=True)
        variance = centred.square().sum(1, keepdim=True) / (x.shape[1] - 1)
        normal = (centred / torch.sqrt(variance + 1e-5)).to(x.dtype)
        hidden = self.mlp_activate(prior)
        return cast("Tensor", normal * (1 + self.mlp_gamma(hidden) * w) + self.mlp_beta(hidden) * w)


class MaskConv(nn.Module):
    """One dilation of a mask as the public code does it: any valid pixel under the kernel."""

    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.mask_conv = nn.Conv2d(1, 1, kernel, 1, kernel // 2, bias=False)

    def forward(self, mask: Tensor) -> Tensor:
        """N×1×H×W of 0 and 1 to the same."""
        reached: Tensor = self.mask_conv(mask)
        return (reached != 0).to(mask.dtype)


class MaxDilation(nn.Module):
    """The same as a maximum."""

    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, mask: Tensor) -> Tensor:
        """N×1×H×W of 0 and 1 to the same."""
        return F.max_pool2d(mask, self.kernel, 1, self.kernel // 2)


class SPDNormBlock(nn.Module):
    """Residual block with hard (distance to the hole's rim) and soft (learnt) probabilistic diversity."""

    conv_0: nn.Module
    conv_1: nn.Module
    conv_s: nn.Module
    mask_conv: nn.Module

    def __init__(self, into: int, out: int, dilations: int, kernel: int) -> None:
        super().__init__()
        self.dilations = dilations
        self.v = nn.Parameter(torch.zeros(1))  # in every file, used by nothing
        self.conv_0, self.conv_1 = SpectralConv2d(into, out, 3), SpectralConv2d(out, out, 3)
        self.conv_s = SpectralConv2d(into, out, 1, bias=False)
        self.norm_0, self.norm_1, self.norm_s = SPDNorm(into), SPDNorm(out), SPDNorm(into)
        self.mask_conv = MaskConv(kernel)
        features = [nn.Conv2d(3, 128, 3, 1, 1), nn.InstanceNorm2d(128), nn.ReLU(), nn.Conv2d(128, into, 3, 1, 1)]
        self.conv_to_f = nn.Sequential(*features)
        self.attention = nn.Sequential(nn.Conv2d(2 * into, into, 3, 1, 1), nn.Sigmoid())

    def forward(self, x: Tensor, prior: Tensor, valid: Tensor) -> Tensor:
        """N×C×S×S; prior N×3×256×256; valid N×1×256×256, FP32."""
        step = SIDE // x.shape[2]
        prior, valid = prior[:, :, ::step, ::step], valid[:, :, ::step, ::step]  # nearest, at whole steps
        hard, m = self._hard(valid).to(x.dtype), valid.to(x.dtype)
        soft = self.attention(torch.cat([self.conv_to_f(prior), x], 1)) * (1 - m) + m
        y = self.conv_0(F.leaky_relu(self.norm_0(x, prior, hard), 0.2))
        y = self.conv_1(F.leaky_relu(self.norm_1(y, prior, hard), 0.2))
        return cast("Tensor", self.conv_s(self.norm_s(x, prior, soft)) + y)

    def _hard(self, valid: Tensor) -> Tensor:
        total, reached = valid, valid
        for distance in range(1, self.dilations + 1):
            wider = self.mask_conv(reached)
            total = total + (wider - reached) * math.exp(-distance)
            reached = wider
        return total + (1 - reached) * math.exp(-self.dilations)


class Unit(nn.Module):
    """A block and the doubling after it."""

    def __init__(self, into: int, out: int, dilations: int, kernel: int) -> None:
        super().__init__()
        self.block = SPDNormBlock(into, out, dilations, kernel)
        self.up = nn.ConvTranspose2d(out, out, 4, 2, 1)

    def forward(self, x: Tensor, prior: Tensor, valid: Tensor) -> Tensor:
        """To twice the size."""
        return cast("Tensor", self.up(self.block(x, prior, valid)))


class SPDNormGenerator(nn.Module):
    """The diverse generator: from a latent vector, guided by the prior."""

    def __init__(self, options: PDGANOptions) -> None:
        super().__init__()
        ngf = options.ngf
        self.widest = 16 * ngf
        self.fc = nn.Linear(options.z_dim, self.widest * SMALLEST**2)
        self.generated = nn.ModuleList(Unit(into * ngf, out * ngf, n, kernel) for into, out, n, kernel in _UNITS)
        self.conv_img = nn.Conv2d(ngf, 3, 3, 1, 1)

    def forward(self, latent: Tensor, prior: Tensor, valid: Tensor) -> Tensor:
        """N×Z, N×3×256×256 in [-1, 1], N×1×256×256 FP32 to N×3×256×256 in [-1, 1]."""
        x = self.fc(latent).view(-1, self.widest, SMALLEST, SMALLEST)
        for unit in self.generated:
            x = unit(x, prior, valid)
        return torch.tanh(self.conv_img(F.leaky_relu(x, 0.2)))


class PDGANNet(nn.Module):
    """The nets of one model; each keeps its public layout under its public name."""

    def __init__(self, options: PDGANOptions) -> None:
        super().__init__()
        self.prior = PriorNet(options.prior_width)
        self.PDGAN = SPDNormGenerator(options) if options.diverse else None


class Diverse(nn.Module):
    """The nets behind the tensor contract."""

    def __init__(self, prior: nn.Module, generator: nn.Module | None) -> None:
        super().__init__()
        self.prior, self.generator = prior, generator

    def forward(self, image: Tensor, mask: Tensor, latent: Tensor | None = None) -> Tensor:
        """The tensor contract: see the module."""
        kind, valid = compute_type(self), 1 - mask
        picture = self.prior(((image * 2 - 1) * valid).to(kind), valid)
        if self.generator is not None and latent is not None:
            picture = self.generator(latent.to(kind), picture, valid)
        return cast("Tensor", picture.float() * 0.5 + 0.5)


class PDGAN(Family[PDGANOptions]):
    """PD-GAN, with or without its diverse generator."""

    name = "pdgan"
    summary = "PD-GAN (Liu et al. 2021): stage 1 and SPDNorm generator, layout of KumapowerLIU/PD-GAN"
    options = PDGANOptions

    def recognise(self, state: State) -> PDGANOptions | None:
        """EN and DE must be there; the generator is optional. Several files or parts arrive here as one state."""
        first, last = state.get("Encoder_1.conv.input_conv.weight"), state.get("Decoder_6.model.1.weight")
        if first is None or last is None:
            return None
        fc, image = state.get("fc.weight"), state.get("conv_img.weight")
        if fc is None or image is None:
            return PDGANOptions.model_validate({"prior_width": first.shape[0], "diverse": False})
        sizes = {"prior_width": first.shape[0], "ngf": image.shape[1], "z_dim": fc.shape[1]}
        return PDGANOptions.model_validate(sizes)

    def build(self, options: PDGANOptions) -> nn.Module:
        return PDGANNet(options)

    def translate(self, state: State, options: PDGANOptions) -> Translation:
        """Each net's keys under the net's name; whatever else the files hold is left out."""
        homes = {"EN": "prior.EN", "DE": "prior.DE", "PDGAN": "PDGAN"}
        if not options.diverse:
            del homes["PDGAN"]
        kept, dropped = {}, {}
        for key, tensor in state.items():
            part = next((part for part in homes if key.startswith(_PARTS[part])), None)
            if part is None:
                dropped[key] = "of another net"
            else:
                kept[f"{homes[part]}.{key}"] = tensor
        return Translation(kept, dropped=dropped)

    def interface(self, options: PDGANOptions) -> Interface:
        side = (SIDE, SIDE)
        latent = (TensorSpec(name="latent", dtype="float32", shape=("batch", options.z_dim)),)
        return Interface(
            task="inpaint",
            inputs=(
                image_tensor("image", 3, side=side),
                image_tensor("mask", 1, side=side),
                *(latent if options.diverse else ()),
            ),
            output=image_tensor("output", 3, side=side),
            size=FixedSize(height=SIDE, width=SIDE),
        )

    def bars(self, options: PDGANOptions) -> Bars:  # noqa: ARG002 (all nets of the family have them)
        """Instance norms on flat areas, and a normalisation of every pixel over few channels, amplify rounding."""
        return Bars(fp32_max_abs=2e-3, fp32_psnr_db=75, fp16_psnr_db=40)

    def wrap(self, net: nn.Module, options: PDGANOptions) -> nn.Module:  # noqa: ARG002 (the net knows them)
        nets = cast("PDGANNet", net)
        return Diverse(nets.prior, nets.PDGAN)

    def lower(self, net: nn.Module, options: PDGANOptions) -> nn.Module:  # noqa: ARG002 (as above)
        nets = cast("PDGANNet", net)
        generator = None if nets.PDGAN is None else lower_norms(nets.PDGAN)
        for unit in [] if generator is None else generator.generated:
            block = cast("SPDNormBlock", unit.block)
            block.conv_0, block.conv_1, block.conv_s = (
                _folded(cast("SpectralConv2d", conv)) for conv in (block.conv_0, block.conv_1, block.conv_s)
            )
            block.mask_conv = MaxDilation(cast("MaskConv", block.mask_conv).mask_conv.kernel_size[0])
        return Diverse(lowered_prior(nets.prior), generator).eval()
