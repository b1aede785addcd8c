"""PD-GAN: stage 1 (a partial-convolution prior) and the SPDNorm generator, layout of KumapowerLIU/PD-GAN.

Liu et al., "PD-GAN: Probabilistic Diverse GAN for Image Inpainting", CVPR 2021.

Nets:     EN (image N×3×256×256 in [-1, 1] times mask, mask N×3×256×256 with 1 = VALID) feeds DE, which gives the prior;
          PDGAN (latent N×Z, prior, mask) gives the picture in [-1, 1].
Contract: image in [0, 1], mask N×1×256×256 with 1 = FILL, latent N×S×Z; output N×S×3×256×256 in
          [0, 1], not composited. What depends on the picture alone is computed once for its S samples.

With `fill_widths` stage 1 is FillNet instead, whose fill is put into the picture, and PDGAN's output is added to that
(docs/adr/0061-fillnet-as-pdgans-prior.md); such files are trained here, with FillNet's keys behind `fill.`.

Files of EN and DE alone (the published ones: no PDGAN generator was released) give the prior as the picture and take
no latent. Stage 1 divides by what the file's mask convolution sums, which is not all ones in files made by the public
training code. Spectral norms are folded for the graph. The generator's own mask convolutions only ask whether any
pixel under the kernel is valid: a maximum.
"""

from __future__ import annotations

import copy
from typing import cast

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from engines.manifest import FixedSize, TensorSpec
from export.generators.family import Bars, Family, GeneratorOptions, Interface, State, Translation, image_tensor
from export.generators.fillnet.generator import FillNet
from export.generators.fillnet.options import DIGITS_OR_NONE, NUMBERS, FillNetOptions, empty_without_attention
from export.generators.pdgan.diverse import SIDE, SPDNormGenerator, lowered_generator
from export.generators.pdgan.fill_prior import FillPrior
from export.generators.pdgan.prior import PriorNet, lowered_prior
from export.lowering import compute_type

_NUMBERS = f"^$|{NUMBERS}"
FILL = "fill."
"""Prefix of FillNet's keys in files."""
_PARTS = {
    "fill": (FILL,),
    "EN": ("Encoder_", "middle."),
    "DE": ("Decoder_",),
    "PDGAN": ("fc.", "generated.", "conv_img."),
}


class PDGANOptions(GeneratorOptions):
    """The options that distinguish nets of this family."""

    prior_width: int = Field(64, ge=1, le=256, description="channels of stage 1's first layer")
    diverse: bool = Field(True, description="with the SPDNorm generator; false: stage 1 alone")
    ngf: int = Field(64, ge=1, le=256, description="channels before the generator's last convolution")
    z_dim: int = Field(256, ge=1, le=4096, description="length of the latent vector")
    fill_widths: str = Field(
        "", pattern=_NUMBERS, description="FillNet as stage 1: its widths; empty: partial convolutions"
    )
    fill_encoder: str = Field("", pattern=_NUMBERS, description="residual blocks of each level of FillNet's encoder")
    fill_decoder: str = Field("", pattern=_NUMBERS, description="residual blocks of each level of FillNet's decoder")
    fill_context: str = Field(
        "", pattern=DIGITS_OR_NONE, description="layers of attention of each level of FillNet; empty: none"
    )

    _one_form_without_attention = field_validator("fill_context")(empty_without_attention)

    @property
    def fill(self) -> FillNetOptions | None:
        """The options of FillNet as stage 1, which the generator then adds to; None for partial convolutions."""
        given = {name: getattr(self, f"fill_{name}") for name in FillNetOptions.model_fields}
        return FillNetOptions(**given) if any(given.values()) else None

    @model_validator(mode="after")
    def _check_consistency(self) -> PDGANOptions:
        if self.fill is not None and not self.diverse:
            raise ValueError("fill_widths without the diverse generator is FillNet; use that family")
        return self


class PDGANNet(nn.Module):
    """The nets of one model; names and layouts of tensors are those of published checkpoints."""

    def __init__(self, options: PDGANOptions) -> None:
        super().__init__()
        self.prior = FillPrior(options.fill) if options.fill else PriorNet(options.prior_width)
        adds = options.fill is not None
        self.PDGAN = SPDNormGenerator(options.ngf, options.z_dim, adds=adds) if options.diverse else None


class DiverseContract(nn.Module):
    """The nets of PD-GAN behind the tensor contract.

    `shares`: whether the part that depends only on the picture is computed once for all its samples.
    """

    def __init__(self, prior: nn.Module, generator: nn.Module | None, *, shares: bool) -> None:
        super().__init__()
        self.prior, self.generator, self.shares = prior, generator, shares

    def forward(self, image: Tensor, mask: Tensor, latent: Tensor | None = None) -> Tensor:
        """Map the tensor contract's inputs to the output; see the module's docstring."""
        kind, valid = compute_type(self), 1 - mask
        picture = self.prior(((image * 2 - 1) * valid).to(kind), valid)
        if self.generator is None or latent is None:
            return cast("Tensor", picture.float() * 0.5 + 0.5)
        picture = picture.to(kind)
        count, samples, flat = latent.shape[0], latent.shape[1], latent.flatten(0, 1).to(kind)
        rows = torch.arange(count, device=latent.device)[:, None].expand(-1, samples).flatten()
        given = (picture, valid, rows) if self.shares else (picture[rows], valid[rows])
        output = (self.generator(flat, *given).float() * 0.5 + 0.5).clamp(0, 1)  # an added picture can exceed it
        return cast("Tensor", output.unflatten(0, (count, samples)))


class PDGAN(Family[PDGANOptions]):
    """PD-GAN, with or without its diverse generator."""

    name = "pdgan"
    summary = "PD-GAN (Liu et al. 2021): stage 1 and SPDNorm generator, layout of KumapowerLIU/PD-GAN"
    options = PDGANOptions

    def recognise(self, state: State) -> PDGANOptions | None:
        """Recognise EN, DE and the optional generator, or FillNet and it; several files arrive as one state dict."""
        fc, image = state.get("fc.weight"), state.get("conv_img.weight")
        fill = FillNet().recognise({key[len(FILL) :]: state[key] for key in state if key.startswith(FILL)})
        if fill is not None and fc is not None and image is not None:
            given = {f"fill_{name}": value for name, value in fill.model_dump().items()}
            return PDGANOptions.model_validate({"ngf": image.shape[1], "z_dim": fc.shape[1], **given})
        first, last = state.get("Encoder_1.conv.input_conv.weight"), state.get("Decoder_6.model.1.weight")
        if first is None or last is None:
            return None
        if fc is None or image is None:
            return PDGANOptions.model_validate({"prior_width": first.shape[0], "diverse": False})
        sizes = {"prior_width": first.shape[0], "ngf": image.shape[1], "z_dim": fc.shape[1]}
        return PDGANOptions.model_validate(sizes)

    def build(self, options: PDGANOptions) -> nn.Module:
        return PDGANNet(options)

    def translate(self, state: State, options: PDGANOptions) -> Translation:
        """Put each net's keys under the net's name; other keys are dropped."""
        homes = {"fill": "prior.net"} if options.fill else {"EN": "prior.EN", "DE": "prior.DE"}
        if options.diverse:
            homes["PDGAN"] = "PDGAN"
        kept, dropped = {}, {}
        for key, tensor in state.items():
            part = next((part for part in homes if key.startswith(_PARTS[part])), None)
            if part is None:
                dropped[key] = "of another net"
            else:
                kept[f"{homes[part]}.{key.removeprefix(FILL)}"] = tensor
        return Translation(kept, dropped=dropped)

    def interface(self, options: PDGANOptions) -> Interface:
        side = (SIDE, SIDE)
        latent = TensorSpec(name="latent", dtype="float32", shape=("batch", "samples", options.z_dim))
        picture = image_tensor("output", 3, side=side)
        several = picture.model_copy(update={"shape": ("batch", "samples", 3, *side)})
        return Interface(
            task="inpaint",
            inputs=(
                image_tensor("image", 3, side=side),
                image_tensor("mask", 1, side=side),
                *((latent,) if options.diverse else ()),
            ),
            output=several if options.diverse else picture,
            size=FixedSize(height=SIDE, width=SIDE),
        )

    def bars(self, options: PDGANOptions) -> Bars:  # noqa: ARG002 (all nets of the family have them)
        """Allow more deviation: instance norms on flat areas and pixel norms over few channels amplify rounding."""
        return Bars(fp16_psnr_db=40)

    def wrap(self, net: nn.Module, options: PDGANOptions) -> nn.Module:  # noqa: ARG002 (the net knows them)
        nets = cast("PDGANNet", net)
        return DiverseContract(nets.prior, nets.PDGAN, shares=False)

    def lower(self, net: nn.Module, options: PDGANOptions) -> nn.Module:  # noqa: ARG002 (as above)
        nets = cast("PDGANNet", net)
        generator = None if nets.PDGAN is None else lowered_generator(nets.PDGAN)
        prior = lowered_prior(nets.prior) if isinstance(nets.prior, PriorNet) else copy.deepcopy(nets.prior)
        return DiverseContract(prior, generator, shares=True).eval()
