"""DCGAN generator, layout of pytorch/examples (`main.0.weight`).

Radford et al., "Unsupervised Representation Learning with Deep Convolutional Generative Adversarial Networks", 2015.

Net:      z N×Z×1×1, standard normal, to N×C×S×S in [-1, 1]; S is 64, or 64·2ⁿ with n more layers in front.
Contract: latent N×Z to N×C×S×S in [0, 1].
"""

from __future__ import annotations

from itertools import pairwise
from typing import cast

from pydantic import Field, field_validator
from torch import Tensor, nn

from engines.manifest import FixedSize, TensorSpec
from export.generators.family import Family, GeneratorOptions, Interface, State, image_tensor
from export.lowering import compute_type, lower_norms

_BITS_OF_FIRST = 3
"""Bits of the number 4, the side of the first layer's output."""
_MIN_STAGES, _MAX_STAGES = 4, 8
"""Stages of 64×64 and of 1024×1024 pictures."""
_SIDES = tuple(4 << stages for stages in range(_MIN_STAGES, _MAX_STAGES + 1))
_INDICES_A_STAGE = 3
"""Number of indices that a stage takes in `main`: transposed convolution, batch norm, ReLU."""


class DCGANOptions(GeneratorOptions):
    """The arguments of the public generator, under their public names."""

    nz: int = Field(100, ge=1, le=4096, description="length of the latent vector")
    ngf: int = Field(64, ge=1, le=1024, description="channels before the last layer")
    nc: int = Field(3, ge=1, le=3, description="channels of the picture")
    side: int = Field(64, description="side of the picture: 64, 128, 256, 512 or 1024; every doubling is a layer")

    @field_validator("side")
    @classmethod
    def _check_side(cls, side: int) -> int:
        if side not in _SIDES:
            raise ValueError(f"should be one of {', '.join(map(str, _SIDES))}")
        return side

    @property
    def stages(self) -> int:
        """The number of transposed convolutions before the last: 4 of them make 64×64."""
        return self.side.bit_length() - _BITS_OF_FIRST


class DCGANNet(nn.Module):
    """Transposed convolutions (five for 64×64), batch norm and ReLU between them, tanh at the end."""

    def __init__(self, options: DCGANOptions) -> None:
        super().__init__()
        widths = [options.nz, *(options.ngf << stage for stage in reversed(range(options.stages)))]
        layers: list[nn.Module] = []
        for index, (into, out) in enumerate(pairwise(widths)):
            geometry = (4, 2, 1) if index else (4, 1, 0)
            layers += [nn.ConvTranspose2d(into, out, *geometry, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
        last = nn.ConvTranspose2d(options.ngf, options.nc, 4, 2, 1, bias=False)
        self.main = nn.Sequential(*layers, last, nn.Tanh())

    def forward(self, z: Tensor) -> Tensor:
        """Map N×Z×1×1 to N×C×S×S in [-1, 1]."""
        return cast("Tensor", self.main(z))


class _FromLatent(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, latent: Tensor) -> Tensor:
        y = self.net(latent[:, :, None, None].to(compute_type(self.net)))
        return cast("Tensor", y.float() * 0.5 + 0.5)


def _is_last(state: State, index: int) -> bool:
    """Return whether `main.INDEX` is a convolution without a norm after it."""
    return f"main.{index}.weight" in state and f"main.{index + 1}.weight" not in state


class DCGAN(Family[DCGANOptions]):
    """DCGAN generators of pictures of 64, 128 … 1024 pixels a side."""

    name = "dcgan"
    summary = "DCGAN (Radford et al. 2015), layout of pytorch/examples"
    options = DCGANOptions

    def recognise(self, state: State) -> DCGANOptions | None:
        """Recognise `main.0.weight` and the last layer, `main.12.weight` for 64×64; shapes give all options."""
        first = state.get("main.0.weight")
        stages = next((n for n in range(_MIN_STAGES, _MAX_STAGES + 1) if _is_last(state, n * _INDICES_A_STAGE)), None)
        if first is None or first.ndim != 4 or stages is None:
            return None
        last = state[f"main.{stages * _INDICES_A_STAGE}.weight"]
        if last.ndim != 4 or last.shape[1] > 3:
            return None
        values = {"nz": first.shape[0], "ngf": last.shape[0], "nc": last.shape[1], "side": 4 << stages}
        return DCGANOptions.model_validate(values)

    def build(self, options: DCGANOptions) -> nn.Module:
        return DCGANNet(options)

    def interface(self, options: DCGANOptions) -> Interface:
        return Interface(
            task="generate",
            inputs=(TensorSpec(name="latent", dtype="float32", shape=("batch", options.nz)),),
            output=image_tensor("output", options.nc, side=(options.side, options.side)),
            size=FixedSize(height=options.side, width=options.side),
        )

    def wrap(self, net: nn.Module, options: DCGANOptions) -> nn.Module:  # noqa: ARG002 (the net knows them)
        return _FromLatent(net)

    def lower(self, net: nn.Module, options: DCGANOptions) -> nn.Module:  # noqa: ARG002 (as above)
        return _FromLatent(lower_norms(net)).eval()
