"""pix2pix and CycleGAN generators in the layout of junyanz/pytorch-CycleGAN-and-pix2pix.

Isola et al., "Image-to-Image Translation with Conditional Adversarial Networks", CVPR 2017 (U-Nets); Zhu et al.,
"Unpaired Image-to-Image Translation using Cycle-Consistent Adversarial Networks", ICCV 2017 (ResNets).

Net:      N×C×H×W in [-1, 1] to N×C'×H×W in [-1, 1]; U-Nets take their own size, ResNets multiples of 4.
Contract: both sides in [0, 1].

Upstream's test script leaves the net in training mode. `batch_norm=batch-statistics` gives the deterministic part of
that, the picture's own statistics (exactly an instance norm with the batch norm's weight and bias at batch 1);
`eval`, the default, uses the running statistics. Dropout is never active.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, cast

import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from engines.manifest import FixedSize, MultipleSize
from export.errors import LayoutMismatch
from export.generators.family import (
    Family,
    GeneratorOptions,
    Interface,
    State,
    Translation,
    image_tensor,
    without_statistics,
)
from export.lowering import TanhScaled, lower_norms

NetName = Literal["unet_128", "unet_256", "resnet_6blocks", "resnet_9blocks"]
NormName = Literal["batch", "instance", "none"]
Norm = Callable[[int], nn.Module]
PaddingName = Literal["reflect", "replicate", "zero"]
_PADS = {"reflect": nn.ReflectionPad2d, "replicate": nn.ReplicationPad2d}
"""Layers before the convolutions of a ResNet's blocks; with zeros, the convolutions pad themselves."""
_DEPTHS = {"unet_128": 7, "unet_256": 8}
_MIN_DEPTH = 5
"""The fewest levels that upstream's class can have; files with fewer lack keys."""
_BLOCKS = {"resnet_6blocks": 6, "resnet_9blocks": 9}


class Pix2PixOptions(GeneratorOptions):
    """The arguments of the public `define_G` that shape the net, and the statistics that its batch norms use."""

    net: NetName = "unet_256"
    norm: NormName = "batch"
    ngf: int = Field(64, ge=1, le=1024, description="channels of the first layer")
    in_channels: int = Field(3, ge=1, le=3)
    out_channels: int = Field(3, ge=1, le=3)
    dropout: bool = Field(False, description="trained with dropout: moves keys of a ResNet block, else no effect")
    padding: PaddingName = Field(
        "reflect", description="of a ResNet's blocks (upstream's padding_type); a file shows zero, not the others"
    )
    batch_norm: Literal["eval", "batch-statistics"] = "eval"


def _norm_layer(name: NormName) -> Norm:
    if name == "batch":
        return nn.BatchNorm2d
    if name == "instance":
        return partial(nn.InstanceNorm2d, affine=False, track_running_stats=False)
    return lambda _channels: nn.Identity()


class UNetLevel(nn.Module):
    """One U-Net level: down, the levels below, up, and the skip around them; `channels` = in, inner, out."""

    def __init__(self, channels: tuple[int, int, int], norm: Norm, below: UNetLevel | None, *, bias: bool) -> None:
        super().__init__()
        into, inner, out = channels
        self.model = nn.Sequential(nn.LeakyReLU(0.2), nn.Conv2d(into, inner, 4, 2, 1, bias=bias))
        if below is not None:
            self.model.extend([norm(inner), below])
        up = nn.ConvTranspose2d(inner if below is None else 2 * inner, out, 4, 2, 1, bias=bias)
        self.model.extend([nn.ReLU(), up, norm(out)])

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to N×2C×H×W."""
        return torch.cat([x, self.model(x)], 1)


class UNetOutermost(nn.Module):
    """The U-Net level without a skip: first convolution, the levels below, last transposed convolution, tanh."""

    def __init__(self, channels: tuple[int, int, int], below: UNetLevel, *, bias: bool) -> None:
        super().__init__()
        into, inner, out = channels
        first = nn.Conv2d(into, inner, 4, 2, 1, bias=bias)
        self.model = nn.Sequential(first, below, nn.ReLU(), nn.ConvTranspose2d(2 * inner, out, 4, 2, 1), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to N×C'×H×W in [-1, 1]."""
        return cast("Tensor", self.model(x))


class UNet(nn.Module):
    """The nets unet_128 and unet_256: 7 and 8 levels, at most 8·ngf channels."""

    def __init__(self, options: Pix2PixOptions) -> None:
        super().__init__()
        norm, bias, c = _norm_layer(options.norm), options.norm == "instance", options.ngf
        below = UNetLevel((8 * c, 8 * c, 8 * c), norm, None, bias=bias)
        for _ in range(_DEPTHS[options.net] - 5):
            below = UNetLevel((8 * c, 8 * c, 8 * c), norm, below, bias=bias)
        for width in (4 * c, 2 * c, c):
            below = UNetLevel((width, 2 * width, width), norm, below, bias=bias)
        self.model = UNetOutermost((options.in_channels, c, options.out_channels), below, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to N×C'×H×W, both in [-1, 1]; H and W are multiples of 2^levels."""
        return cast("Tensor", self.model(x))


class ResNetBlock(nn.Module):
    """x + conv, norm, ReLU, conv, norm, each convolution padded by one pixel on each side.

    Padding and dropout have no weights; their layers only raise the indices of the convolutions in the keys of the
    state dict.
    """

    def __init__(self, channels: int, norm: Norm, padding: PaddingName, *, bias: bool, dropout: bool) -> None:
        super().__init__()
        self.conv_block = nn.Sequential()
        for between in ([nn.ReLU(), *([nn.Dropout(0.5)] if dropout else [])], []):
            if (pad := _PADS.get(padding)) is not None:
                self.conv_block.append(pad(1))
            conv = nn.Conv2d(channels, channels, 3, padding=1 if pad is None else 0, bias=bias)
            self.conv_block.extend([conv, norm(channels), *between])

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to the same shape."""
        return x + cast("Tensor", self.conv_block(x))


class ResNet(nn.Module):
    """The nets resnet_6blocks and resnet_9blocks: two downsamplings, blocks, two upsamplings."""

    def __init__(self, options: Pix2PixOptions) -> None:
        super().__init__()
        norm, bias, c = _norm_layer(options.norm), options.norm == "instance", options.ngf
        layers = [nn.ReflectionPad2d(3), nn.Conv2d(options.in_channels, c, 7, bias=bias), norm(c), nn.ReLU()]
        for width in (c, 2 * c):
            down = nn.Conv2d(width, 2 * width, 3, 2, 1, bias=bias)
            layers += [down, norm(2 * width), nn.ReLU()]
        for _ in range(_BLOCKS[options.net]):
            layers.append(ResNetBlock(4 * c, norm, options.padding, bias=bias, dropout=options.dropout))
        for width in (4 * c, 2 * c):
            up = nn.ConvTranspose2d(width, width // 2, 3, 2, 1, output_padding=1, bias=bias)
            layers += [up, norm(width // 2), nn.ReLU()]
        self.model = nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(c, options.out_channels, 7), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to N×C'×H×W, both in [-1, 1]; H and W are multiples of 4."""
        return cast("Tensor", self.model(x))


class Pix2Pix(Family[Pix2PixOptions]):
    """pix2pix and CycleGAN generators."""

    name = "pix2pix"
    summary = "pix2pix/CycleGAN U-Nets and ResNets (Isola, Zhu et al. 2017), layout of pytorch-CycleGAN-and-pix2pix"
    options = Pix2PixOptions

    def recognise(self, state: State) -> Pix2PixOptions | None:
        """Recognise U-Nets by nested keys, ResNets by their blocks, norms by parameters or conv biases.

        Raises:
            LayoutMismatch: the net is a U-Net of upstream's class, but of a depth that none of upstream's nets has.
        """
        if "model.model.0.weight" in state:
            return _recognise_unet(state)
        return _recognise_resnet(state)

    def build(self, options: Pix2PixOptions) -> nn.Module:
        return UNet(options) if options.net in _DEPTHS else ResNet(options)

    def translate(self, state: State, options: Pix2PixOptions) -> Translation:
        """Drop the running statistics that instance norms saved before 2018 and never used."""
        return without_statistics(state) if options.norm == "instance" else Translation(state)

    def interface(self, options: Pix2PixOptions) -> Interface:
        side = 2 ** _DEPTHS[options.net] if options.net in _DEPTHS else None
        square = (side, side) if side else None
        source = image_tensor("image", options.in_channels, side=square)
        output = image_tensor("output", options.out_channels, side=square)
        if (options.in_channels, options.out_channels) == (1, 2):  # upstream's colorization: L / 50 - 1 to ab / 110
            source = source.model_copy(update={"colours": "lightness"})
            output = output.model_copy(update={"colours": "ab"})
        size = (
            FixedSize(height=side, width=side) if side else MultipleSize(multiple_of=4, sides=(256, 512), fit="resize")
        )
        return Interface(task="translate", inputs=(source,), output=output, size=size)

    def examine(
        self,
        net: nn.Module,  # noqa: ARG002 (what the net computes does not show it either)
        options: Pix2PixOptions,
        feeds: Sequence[Mapping[str, NDArray[Any]]],  # noqa: ARG002
    ) -> Sequence[str]:
        """Say which padding of a ResNet's blocks was assumed."""
        if options.net in _DEPTHS or options.padding != "reflect":
            return ()
        note = "padding=reflect was assumed, as by default upstream, because a file does not show it"
        return (f"{note}; for a net that was trained with replicated edges add --option padding=replicate",)

    def wrap(self, net: nn.Module, options: Pix2PixOptions) -> nn.Module:
        return TanhScaled(PerSampleBatchNorm(net) if options.batch_norm == "batch-statistics" else net)

    def lower(self, net: nn.Module, options: Pix2PixOptions) -> nn.Module:
        return TanhScaled(lower_norms(net, batch_statistics=options.batch_norm == "batch-statistics")).eval()


class PerSampleBatchNorm(nn.Module):
    """The reference for batch statistics: batch norms in training mode, one sample at a time, without dropout."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = copy.deepcopy(net)
        for module in self.net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.track_running_stats = False
                module.running_mean = module.running_var = None

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to the net's output."""
        return torch.cat([self.net(x[i : i + 1]) for i in range(x.shape[0])])


def _recognise_norm(state: State, conv: str, norm: str) -> NormName:
    """Recognise the norm by its weights, or by the bias that a convolution has only before an instance norm.

    Raises:
        LayoutMismatch: the norm has weights and no statistics, so that the file does not show its kind.
    """
    if f"{norm}.weight" in state and f"{norm}.running_mean" not in state:
        raise LayoutMismatch(
            f"a pix2pix net whose norms have weights and no running statistics ({norm}): affine instance norms, group "
            "norms or batch norms without tracking, which a file does not tell apart and upstream's nets do not have; "
            "such a net cannot be exported; if the statistics are in another file, give that too"
        )
    if f"{norm}.weight" in state:
        return "batch"
    return "instance" if f"{conv}.bias" in state else "none"


def _recognise_unet(state: State) -> Pix2PixOptions | None:
    prefix, depth = "model.model", 1
    while f"{prefix}.{1 if depth == 1 else 3}.model.1.weight" in state:
        prefix = f"{prefix}.{1 if depth == 1 else 3}.model"
        depth += 1
    if depth < _MIN_DEPTH or "model.model.3.weight" not in state:
        return None
    net = {levels: name for name, levels in _DEPTHS.items()}.get(depth)
    if net is None:
        known = " and ".join(f"{levels} ({name})" for name, levels in _DEPTHS.items())
        raise LayoutMismatch(
            f"a pix2pix U-Net of {depth} levels, for pictures of {2**depth}²; only those of {known} can be exported"
        )
    return Pix2PixOptions.model_validate(
        {
            "net": net,
            "norm": _recognise_norm(state, "model.model.1.model.1", "model.model.1.model.2"),
            "ngf": state["model.model.0.weight"].shape[0],
            "in_channels": state["model.model.0.weight"].shape[1],
            "out_channels": state["model.model.3.weight"].shape[1],
        }
    )


def _recognise_resnet(state: State) -> Pix2PixOptions | None:
    pad_layers = 0 if "model.10.conv_block.0.weight" in state else 1  # before each convolution of a block
    blocks = 0
    while f"model.{10 + blocks}.conv_block.{pad_layers}.weight" in state:
        blocks += 1
    net = {count: name for name, count in _BLOCKS.items()}.get(blocks)
    first, last = state.get("model.1.weight"), state.get(f"model.{17 + blocks}.weight")
    if net is None or first is None or last is None or max(first.shape[1], last.shape[0]) > 3:
        return None
    if "model.2.weight" in state and "model.1.bias" in state:  # pix2pixHD's layout with batch norm
        return None
    return Pix2PixOptions.model_validate(
        {
            "net": net,
            "norm": _recognise_norm(state, "model.1", "model.2"),
            "ngf": first.shape[0],
            "in_channels": first.shape[1],
            "out_channels": last.shape[0],
            "dropout": f"model.10.conv_block.{3 + 2 * pad_layers}.weight" not in state,
            "padding": "reflect" if pad_layers else "zero",
        }
    )
