"""The cases of families.py: every generator at its public width with random weights, most important first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import nn

from engines.manifest import FixedSize
from export.generators import FAMILIES
from export.generators.family import GeneratorOptions, Interface
from export.generators.migan.generator import PUBLIC_FILTER
from export.generators.pdgan.diverse import SpectralConv2d
from export.partial_conv import PartialConv2d

_SEED = 20180420
_LAST = {"dec_1.conv.input_conv.weight": 1 / 150, "dec_1.conv.weight": 1 / 400}
_TO_RGB, _LAMA_LAST = 1 / 10, 1 / 10
"""Factors that bring unbounded outputs to about the range of a picture, as a PSNR with peak 1.0 requires."""

_VARIANCE = {"migan": 1.0, "deepfillv2": 4.0}
"""The variance of weights times their number of inputs, where it is not 2: MI-GAN's activations are amplified by
√2 as in its training, and gates pass about half."""


@dataclass(frozen=True)
class Case:
    """One generator at one size; it is sent to other processes, so all its fields are plain values."""

    name: str
    family: str
    options: Mapping[str, Any]
    side: tuple[int, int]
    batches: tuple[int, ...] = (1, 8, 32)
    cudnn_benchmark: bool = False

    @property
    def size(self) -> str:
        """The size as width × height."""
        return f"{self.side[1]}×{self.side[0]}"

    @property
    def key(self) -> str:
        """A key that is equal for equal programs and valid as a folder's name."""
        return "-".join([self.family, *map(str, self.options.values()), *map(str, self.side)])

    @cached_property
    def parsed(self) -> GeneratorOptions:
        """The family's options."""
        return FAMILIES[self.family].options.model_validate(self.options)

    @cached_property
    def interface(self) -> Interface:
        """The family's interface at this size alone."""
        interface = FAMILIES[self.family].interface(self.parsed)
        size = interface.size
        fixed = size if isinstance(size, FixedSize) else FixedSize(height=self.side[0], width=self.side[1])
        return replace(interface, size=fixed)


_RESNET = {"net": "resnet_9blocks", "norm": "instance"}
_REFERENCE = (
    Case("pix2pix unet_256, batch norm", "pix2pix", {"net": "unet_256"}, (256, 256)),
    Case("pix2pix resnet_9blocks, instance norm", "pix2pix", _RESNET, (256, 256)),
    Case("pconv, 7 levels", "pconv", {"levels": 7}, (256, 256)),
    Case("pconv, 7 levels", "pconv", {"levels": 7}, (512, 512)),
)
_GLOBAL = Case("pix2pixHD global", "pix2pixhd", {"net": "global"}, (512, 1024), (1, 8))
_LOCAL = Case("pix2pixHD local, ngf 32", "pix2pixhd", {"net": "local", "ngf": 32}, (1024, 2048), (1, 8))
CASES = (
    *_REFERENCE,
    *(Case("FillNet", "fillnet", {}, (side, side)) for side in (512, 256, 1024)),
    Case("pconv, 7 levels", "pconv", {"levels": 7}, (1024, 1024)),
    Case("PD-GAN diverse, one sample", "pdgan", {"diverse": True}, (256, 256)),
    Case("PGN, 4 stages", "pgn", {"stages": 4}, (128, 128)),
    Case("DCGAN, nz 100, ngf 64", "dcgan", {"nz": 100}, (64, 64)),
    _GLOBAL,
    Case("pconv_nvidia, 7 levels", "pconv_nvidia", {"levels": 7}, (256, 256)),
    Case("PD-GAN stage 1", "pdgan", {"diverse": False}, (256, 256)),
    Case("PGN, 2 stages", "pgn", {"stages": 2}, (128, 128)),
    Case("pix2pix unet_128, batch norm", "pix2pix", {"net": "unet_128"}, (128, 128)),
    Case("pix2pix resnet_6blocks, instance norm", "pix2pix", {**_RESNET, "net": "resnet_6blocks"}, (256, 256)),
    _LOCAL,
    Case("MI-GAN 512", "migan", {"widths": "64,128,256,512,512,512,512,512"}, (512, 512)),
    Case("MI-GAN 256", "migan", {}, (256, 256)),
    *(Case(f"big-lama {side}", "lama", {}, (side, side), (1, 8)) for side in (256, 512, 1024)),
    *(Case(f"DeepFillv2 {side}", "deepfillv2", {}, (side, side), (1, 4)) for side in (256, 512)),
    *(
        replace(case, name=f"{case.name} (cudnn.benchmark)", batches=(1, 32), cudnn_benchmark=True)
        for case in _REFERENCE
    ),
    replace(_GLOBAL, batches=(32,)),
    replace(_LOCAL, batches=(32,)),
)
_TINY_RESNET = {**_RESNET, "net": "resnet_6blocks", "ngf": 2}
TINY_CASES = (
    Case("pix2pix unet_128", "pix2pix", {"net": "unet_128", "ngf": 2}, (128, 128), (1, 2)),
    Case("pix2pix resnet_6blocks", "pix2pix", _TINY_RESNET, (32, 32), (1,)),
    Case("pconv", "pconv", {"levels": 3, "width": 4}, (32, 64), (1, 2)),
    Case("FillNet", "fillnet", {"widths": "4,8", "encoder": "0,1", "decoder": "1,1"}, (32, 64), (1, 2)),
    Case("pconv_nvidia", "pconv_nvidia", {"levels": 3, "width": 4}, (32, 32), (1,)),
    Case("pix2pixHD", "pix2pixhd", {"ngf": 2, "downsamplings": 2, "blocks": 1}, (32, 64), (1, 2)),
    Case("PGN", "pgn", {"stages": 2, "width": 2}, (128, 128), (1,)),
    Case("PD-GAN", "pdgan", {"prior_width": 2, "ngf": 2, "z_dim": 4}, (256, 256), (1,)),
    Case("DCGAN", "dcgan", {"nz": 4, "ngf": 2}, (64, 64), (1, 2)),
    Case("MI-GAN", "migan", {"widths": "4,6,8"}, (16, 16), (1, 2)),
    Case("LaMa", "lama", {"ngf": 4, "downsamplings": 2, "blocks": 2}, (32, 64), (1, 2)),
    Case("DeepFillv2", "deepfillv2", {"cnum": 4}, (32, 64), (1, 2)),
)


def build_net(case: Case) -> nn.Module:
    """Build the public net on the CPU in eval mode, with the same weights in every process of one torch.

    Convolutions keep their input's scale (He et al. 2015). A partial convolution in naoto0804's layout divides by the
    size of its window, so its weights are larger by this factor. Batch norms get ordinary statistics; LaMa's get those
    of a random picture, because activations would otherwise exceed FP16 after 18 blocks. The vectors of spectral norms
    are computed from the weights.
    """
    net = FAMILIES[case.family].build(case.parsed)  # on the CPU: some nets hold constants that no state dict has
    generator = torch.Generator().manual_seed(_SEED)
    for name, tensor in net.state_dict().items():
        _fill(tensor, name, generator, _VARIANCE.get(case.family, 2.0))
    for module in net.modules():
        _settle(module)
    for name, tensor in net.state_dict().items():
        if case.family == "migan" and ".torgb." in name:
            tensor.mul_(_TO_RGB)
        if name in _LAST:
            tensor.mul_(_LAST[name])
    if case.family == "lama":
        _take_statistics(net, FAMILIES[case.family].wrap(net, case.parsed), generator)
    return net.eval().requires_grad_(requires_grad=False)


def _take_statistics(net: nn.Module, wrapped: nn.Module, generator: torch.Generator) -> None:
    """Set the running statistics of batch norms to those of a random picture with a hole."""
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = 1.0
    picture, hole = torch.rand(1, 3, 256, 256, generator=generator), torch.zeros(1, 1, 256, 256)
    hole[..., 64:128, 64:128] = 1
    with torch.no_grad():
        wrapped.train()(picture, hole)
        list(net.state_dict().values())[-2].mul_(_LAMA_LAST)  # the last convolution's weights


def _fill(tensor: torch.Tensor, name: str, generator: torch.Generator, variance: float) -> None:
    if name.endswith("mask_conv.weight"):
        tensor.fill_(1)
    elif name.endswith("filter_const"):
        tensor.zero_()[..., ::2, ::2] = 1  # the pixels that MI-GAN keeps
    elif name.endswith("sample.filter.weight"):
        tensor.copy_(PUBLIC_FILTER if "upsample" in name else PUBLIC_FILTER / 4)
    elif not tensor.is_floating_point():
        tensor.zero_()
    elif name.endswith("running_var") or (tensor.ndim == 1 and name.endswith("weight")):
        tensor.uniform_(0.8, 1.2, generator=generator)
    elif tensor.ndim > 1:
        tensor.normal_(0, math.sqrt(variance / math.prod(tensor.shape[1:])), generator=generator)
    else:
        tensor.normal_(0, 0.1, generator=generator)


def _settle(module: nn.Module) -> None:
    if isinstance(module, PartialConv2d):
        module.input_conv.weight.data.mul_(module.input_conv.weight[0].numel())
    if isinstance(module, nn.ConvTranspose2d):
        into, out, *kernel = module.weight.shape
        reached = into * math.prod(kernel) / math.prod(module.stride)
        module.weight.data.mul_(math.sqrt(out * math.prod(kernel) / reached))
    if isinstance(module, SpectralConv2d):
        u, v, matrix = module.weight_u.data, module.weight_v.data, module.weight_orig.data.flatten(1)
        for _ in range(3):  # power iterations, as in the public hook: converge to the largest singular value
            v.copy_(nn.functional.normalize(matrix.t() @ u, dim=0))
            u.copy_(nn.functional.normalize(matrix @ v, dim=0))
