"""DCGAN generator, layout of pytorch/examples (`main.0.weight`).

Radford et al., "Unsupervised Representation Learning with Deep Convolutional Generative Adversarial Networks", 2015.

Net:      z N×Z×1×1, standard normal, to N×C×64×64 in [-1, 1].
Contract: latent N×Z to N×C×64×64 in [0, 1].
"""

from __future__ import annotations

from itertools import pairwise
from typing import cast

from pydantic import Field
from torch import Tensor, nn

from engines.manifest import FixedSize, TensorSpec
from export.generators.family import Family, GeneratorOptions, Interface, State, image_tensor
from export.lowering import compute_type, lower_norms


class DCGANOptions(GeneratorOptions):
    """The arguments of the public generator, under their public names."""

    nz: int = Field(100, ge=1, le=4096, description="length of the latent vector")
    ngf: int = Field(64, ge=1, le=1024, description="channels before the last layer")
    nc: int = Field(3, ge=1, le=3, description="channels of the picture")


class DCGANNet(nn.Module):
    """Five transposed convolutions, batch norm and ReLU between them, tanh at the end."""

    def __init__(self, options: DCGANOptions) -> None:
        super().__init__()
        widths = [options.nz, *(options.ngf * factor for factor in (8, 4, 2, 1))]
        layers: list[nn.Module] = []
        for index, (into, out) in enumerate(pairwise(widths)):
            geometry = (4, 2, 1) if index else (4, 1, 0)
            layers += [nn.ConvTranspose2d(into, out, *geometry, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
        last = nn.ConvTranspose2d(options.ngf, options.nc, 4, 2, 1, bias=False)
        self.main = nn.Sequential(*layers, last, nn.Tanh())

    def forward(self, z: Tensor) -> Tensor:
        """Map N×Z×1×1 to N×C×64×64 in [-1, 1]."""
        return cast("Tensor", self.main(z))


class _FromLatent(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, latent: Tensor) -> Tensor:
        y = self.net(latent[:, :, None, None].to(compute_type(self.net)))
        return cast("Tensor", y.float() * 0.5 + 0.5)


class DCGAN(Family[DCGANOptions]):
    """DCGAN generators of 64×64 pictures."""

    name = "dcgan"
    summary = "DCGAN (Radford et al. 2015), layout of pytorch/examples"
    options = DCGANOptions

    def recognise(self, state: State) -> DCGANOptions | None:
        """Recognise `main.0.weight` and `main.12.weight`, whose shapes give all options."""
        first, last = state.get("main.0.weight"), state.get("main.12.weight")
        if first is None or last is None or first.ndim != 4 or last.shape[1] > 3:
            return None
        return DCGANOptions(nz=first.shape[0], ngf=last.shape[0], nc=last.shape[1])

    def build(self, options: DCGANOptions) -> nn.Module:
        return DCGANNet(options)

    def interface(self, options: DCGANOptions) -> Interface:
        return Interface(
            task="generate",
            inputs=(TensorSpec(name="latent", dtype="float32", shape=("batch", options.nz)),),
            output=image_tensor("output", options.nc, side=(64, 64)),
            size=FixedSize(height=64, width=64),
        )

    def wrap(self, net: nn.Module, options: DCGANOptions) -> nn.Module:  # noqa: ARG002 (the net knows them)
        return _FromLatent(net)

    def lower(self, net: nn.Module, options: DCGANOptions) -> nn.Module:  # noqa: ARG002 (as above)
        return _FromLatent(lower_norms(net)).eval()
