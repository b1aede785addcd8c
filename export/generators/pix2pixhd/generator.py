"""pix2pixHD generators, global and local, layout of NVIDIA/pix2pixHD (`model.1.weight`, `model1_1.1.weight`).

Wang et al., "High-Resolution Image Synthesis and Semantic Manipulation with Conditional GANs", CVPR 2018.

Net:      N×C×H×W, C = one-hot labels (or a picture in [-1, 1] where label_nc is 0) + an edge channel + features of the
          encoder, to N×C'×H×W in [-1, 1]; H and W multiples of 2^(downsamplings + enhancers).
Contract: label N×1×H×W uint8 (or image in [0, 1]), instance N×1×H×W int32, for nets with features a reference
          N×C'×H×W in [0, 1] or, with clusters, a latent N×L of L classes, to [0, 1]; see contract.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

from engines.manifest import MultipleSize, TensorSpec
from export.generators.family import (
    Bars,
    Family,
    Interface,
    State,
    Translation,
    image_tensor,
    instance_map,
    label_map,
    without_statistics,
)
from export.generators.pix2pixhd.contract import FromLabels
from export.generators.pix2pixhd.encoder import FeatureEncoder
from export.generators.pix2pixhd.keys import (
    block_indices,
    cluster_options,
    encoder_options,
    global_options,
    input_options,
    local_options,
    part_of,
    recognise_encoder,
)
from export.generators.pix2pixhd.options import Pix2PixHDOptions
from export.lowering import lower_norms

_ENCODER = "encoder."
"""Prefix of netE's keys where both nets are in one state dict."""
_CLUSTERS = "clusters"
"""The key of each class's clusters of features, L×K×F, which `training cluster` writes."""


def _make_norm(options: Pix2PixHDOptions, channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels) if options.norm == "batch" else nn.InstanceNorm2d(channels)


class ResnetBlock(nn.Module):
    """x + conv, norm, ReLU, conv, norm, with reflection padding."""

    def __init__(self, options: Pix2PixHDOptions, channels: int) -> None:
        super().__init__()
        first = [nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3), _make_norm(options, channels), nn.ReLU()]
        second = [nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3), _make_norm(options, channels)]
        self.conv_block = nn.Sequential(*first, *second)

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to the same shape."""
        return x + cast("Tensor", self.conv_block(x))


def _first_layers(options: Pix2PixHDOptions, width: int) -> list[nn.Module]:
    return [nn.ReflectionPad2d(3), nn.Conv2d(options.in_channels, width, 7), _make_norm(options, width), nn.ReLU()]


def _downsampling_layers(options: Pix2PixHDOptions, width: int) -> list[nn.Module]:
    return [nn.Conv2d(width, 2 * width, 3, 2, 1), _make_norm(options, 2 * width), nn.ReLU()]


def _upsampling_layers(options: Pix2PixHDOptions, width: int) -> list[nn.Module]:
    conv = nn.ConvTranspose2d(2 * width, width, 3, 2, 1, output_padding=1)
    return [conv, _make_norm(options, width), nn.ReLU()]


def _last_layers(options: Pix2PixHDOptions) -> list[nn.Module]:
    return [nn.ReflectionPad2d(3), nn.Conv2d(options.ngf, options.out_channels, 7), nn.Tanh()]


def _global_layers(options: Pix2PixHDOptions, ngf: int) -> list[nn.Module]:
    """Return the layers of the global generator without its last convolution."""
    widths = [ngf * 2**level for level in range(options.downsamplings)]
    layers = _first_layers(options, ngf)
    for width in widths:
        layers += _downsampling_layers(options, width)
    layers += [ResnetBlock(options, 2 * widths[-1]) for _ in range(options.blocks)]
    for width in reversed(widths):
        layers += _upsampling_layers(options, width)
    return layers


class GlobalGenerator(nn.Module):
    """The public netG `global`."""

    def __init__(self, options: Pix2PixHDOptions) -> None:
        super().__init__()
        self.model = nn.Sequential(*_global_layers(options, options.ngf), *_last_layers(options))

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to N×C'×H×W in [-1, 1]."""
        return cast("Tensor", self.model(x))


class LocalEnhancer(nn.Module):
    """The public netG `local`: the global net at the smallest size, and an enhancer for each doubling."""

    def __init__(self, options: Pix2PixHDOptions) -> None:
        super().__init__()
        self.enhancers = options.enhancers
        self.model = nn.Sequential(*_global_layers(options, options.ngf * 2**self.enhancers))
        for n in range(1, self.enhancers + 1):
            width = options.ngf * 2 ** (self.enhancers - n)
            before = [*_first_layers(options, width), *_downsampling_layers(options, width)]
            after = [ResnetBlock(options, 2 * width) for _ in range(options.local_blocks)]
            last = _last_layers(options) if n == self.enhancers else []
            self.add_module(f"model{n}_1", nn.Sequential(*before))
            self.add_module(f"model{n}_2", nn.Sequential(*after, *_upsampling_layers(options, width), *last))

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to N×C'×H×W in [-1, 1]."""
        pyramid = [x]
        for _ in range(self.enhancers):
            pyramid.append(F.avg_pool2d(pyramid[-1], 3, 2, 1, count_include_pad=False))
        y = self.model(pyramid.pop())
        for n in range(1, self.enhancers + 1):
            y = self.get_submodule(f"model{n}_2")(self.get_submodule(f"model{n}_1")(pyramid.pop()) + y)
        return cast("Tensor", y)


class Pix2PixHD(Family[Pix2PixHDOptions]):
    """pix2pixHD generators, with their feature encoder where its file is given too."""

    name = "pix2pixhd"
    summary = "pix2pixHD global and local generators (Wang et al. 2018), layout of NVIDIA/pix2pixHD"
    options = Pix2PixHDOptions

    def recognise(self, state: State) -> Pix2PixHDOptions | None:
        """Recognise downsamplings, blocks and enhancers by counting, classes by the first convolution."""
        first, blocks = state.get("model.1.weight"), block_indices(state, "model")
        encoder, clusters = recognise_encoder(part_of(state, _ENCODER)), state.get(_CLUSTERS)
        local = "model1_1.1.weight" in state
        if first is None or first.shape[2:] != (7, 7) or not blocks or (blocks[0] - 4) % 3:
            return None
        downsamplings = (blocks[0] - 4) // 3
        found = {
            "norm": "batch" if "model.2.weight" in state else "instance",
            "downsamplings": downsamplings,
            "blocks": len(blocks),
            **cluster_options(clusters),
            **encoder_options(encoder),
        }
        found |= input_options(int(first.shape[1]) - int(found.get("features", 0)))
        rest = local_options(state) if local else global_options(state, 4 + 6 * downsamplings + len(blocks) + 1)
        if rest is None or "model.1.bias" not in state or (not local and _is_pix2pix(found)):
            return None
        return Pix2PixHDOptions.model_validate({**found, **rest})

    def join(self, states: Sequence[State]) -> State | None:
        """Join generator and encoder, whose files have equal key names."""
        encoder = next((state for state in states if recognise_encoder(state)), None)
        generator = next((state for state in states if block_indices(state, "model")), None)
        if encoder is None or generator is None:
            return None
        return {**generator, **{f"{_ENCODER}{key}": tensor for key, tensor in encoder.items()}}

    def build(self, options: Pix2PixHDOptions) -> nn.Module:
        net = LocalEnhancer(options) if options.net == "local" else GlobalGenerator(options)
        if options.clusters:
            table = torch.empty(options.label_nc, options.clusters, options.features)
            net.register_buffer(_CLUSTERS, table)
        if options.has_encoder:
            norm = nn.BatchNorm2d if options.norm == "batch" else nn.InstanceNorm2d
            net.add_module("encoder", FeatureEncoder(options.encoder, norm))
        return net

    def translate(self, state: State, options: Pix2PixHDOptions) -> Translation:
        """Drop unused keys: running statistics of instance norms in old files, and the encoder or else the clusters."""
        unused = _ENCODER if options.clusters else _CLUSTERS
        found = without_statistics(state) if options.norm == "instance" else Translation(state)
        dropped = {key: "styles are not taken from it" for key in found.state if key.startswith(unused)}
        kept = {key: tensor for key, tensor in found.state.items() if key not in dropped}
        return Translation(kept, dropped={**found.dropped, **dropped})

    def interface(self, options: Pix2PixHDOptions) -> Interface:
        picture = image_tensor("image", options.image_channels)
        source = label_map(options.label_nc) if options.label_nc else picture
        instance = (instance_map(),) if options.takes_instances else ()
        reference = (image_tensor("reference", options.out_channels),) if options.has_encoder else ()
        latent: tuple[TensorSpec, ...] = ()
        if options.clusters:
            latent = (TensorSpec(name="latent", dtype="float32", shape=("batch", options.label_nc)),)
        side = options.multiple_of * math.ceil((options.side or 512) / options.multiple_of)
        return Interface(
            task="translate",
            inputs=(source, *instance, *reference, *latent),
            output=image_tensor("output", options.out_channels),
            size=MultipleSize(
                multiple_of=options.multiple_of, sides=(side,) if options.side else (side, 2 * side), fit="resize"
            ),
        )

    def bars(self, options: Pix2PixHDOptions) -> Bars:  # noqa: ARG002 (label maps are flat in all of them)
        """Allow more deviation: on flat areas instance norms amplify the rounding of FP16 activations most."""
        return Bars(fp16_psnr_db=40)

    def wrap(self, net: nn.Module, options: Pix2PixHDOptions) -> nn.Module:
        return FromLabels(net, options)

    def lower(self, net: nn.Module, options: Pix2PixHDOptions) -> nn.Module:
        return FromLabels(lower_norms(net), options).eval()


def _is_pix2pix(found: dict[str, object]) -> bool:
    """Return whether the net is pix2pix's ResNet, which has the keys of a global net with two downsamplings."""
    picture = found["label_nc"] == 0 and found.get("edges") is False
    return picture and found["downsamplings"] == 2 and found["blocks"] in (6, 9) and found["norm"] == "instance"
