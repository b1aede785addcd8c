"""The public nets of DeepFillv2: nipponjo's `networks.py` and `networks_tf.py`, and csqiangwen's.

Yu et al., "Free-Form Image Inpainting with Gated Convolution", ICCV 2019. A coarse net fills the hole; a second one
refines that in two branches, one of them with contextual attention.

Net: image N×3×H×W in [-1, 1] and mask N×1×H×W with 1 = FILL to the coarse and the refined picture, both in [-1, 1];
csqiangwen's in [0, 1]. H and W are multiples of 8.

The three name layers differently and compute different functions. networks_tf.py pads stride-2 convolutions on the
right and below only, chooses pixels as TensorFlow's align_corners does, and does not fuse attention scores.
csqiangwen's net is twice as wide, paints holes white, gives the mask to both stages, gates colours too, and softens
norms in attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from pydantic import Field
from torch import Tensor, nn

from export.generators.deepfillv2.attention import ContextualAttention, Sampling, halve
from export.generators.family import GeneratorOptions
from export.lowering import compute_type

Layout = Literal["networks", "networks_tf", "csqiangwen"]
LAYOUTS: tuple[Layout, ...] = ("networks", "networks_tf", "csqiangwen")


class DeepFillV2Options(GeneratorOptions):
    """The options that distinguish nets of this family."""

    layout: Layout = Field("networks", description="the public file whose layers and function these are")
    cnum: int = Field(48, ge=4, le=512, multiple_of=4, description="channels: upstream's cnum or latent_channels")
    activation: Literal["elu", "lrelu"] = Field(
        "elu",
        description="of csqiangwen's nets, not visible in a file: its scripts train with elu, its default is lrelu",
    )


class Layer(NamedTuple):
    """One convolution: its role, its names in nipponjo's two files, and its channels in and, after gating, out.

    Channels are multiples of cnum / 4, for csqiangwen of cnum / 2. `into` is 0 for the input of the coarse net and -1
    for that of the second.
    """

    role: str
    names: tuple[str, str]
    into: int
    out: int
    side: int = 3
    dilation: int = 1
    kind: Literal["plain", "halves", "doubles", "relu", "colours"] = "plain"

    def name(self, layout: Layout) -> str:
        """Return the name of the layer in a layout."""
        if layout != "csqiangwen":
            return self.names[layout == "networks_tf"]
        branch, number = self.role[0], int(self.role[1:])
        if branch == "p" and number > 6:
            return f"refine_atten_2.{number - 9}"
        folder, first = {"c": ("coarse", 1), "x": ("refine_conv", 1), "p": ("refine_atten_1", 1)}.get(
            branch, ("refine_combine", 11)
        )
        return f"{folder}.{number - first}"


def layers() -> Iterator[Layer]:
    """Yield the layers of the coarse net (c), both branches of the second (x, p) and what joins them (a)."""
    yield Layer("c1", ("stage1.conv1", "conv1"), 0, 2, 5)
    yield Layer("c2", ("stage1.down_block1.conv1_downsample", "conv2_downsample"), 2, 4, kind="halves")
    yield Layer("c3", ("stage1.down_block1.conv2", "conv3"), 4, 4)
    yield Layer("c4", ("stage1.down_block2.conv1_downsample", "conv4_downsample"), 4, 8, kind="halves")
    yield Layer("c5", ("stage1.down_block2.conv2", "conv5"), 8, 8)
    yield Layer("c6", ("stage1.conv_bn1", "conv6"), 8, 8)
    for index in range(4):
        names = (f"stage1.conv_bn{index + 2}", f"conv{index + 7}_atrous")
        yield Layer(f"c{index + 7}", names, 8, 8, dilation=2 << index)
    yield Layer("c11", ("stage1.conv_bn6", "conv11"), 8, 8)
    yield Layer("c12", ("stage1.conv_bn7", "conv12"), 8, 8)
    yield from _decoder("c", "stage1", "")
    for role, public, other, last in (("x", "conv", "x", 4), ("p", "ca", "pm", 8)):
        yield Layer(f"{role}1", (f"stage2.{public}_conv1", f"{other}conv1"), -1, 2, 5)
        down = f"stage2.{public}_down_block"
        yield Layer(f"{role}2", (f"{down}1.conv1_downsample", f"{other}conv2_downsample"), 2, 2, kind="halves")
        yield Layer(f"{role}3", (f"{down}1.conv2", f"{other}conv3"), 2, 4)
        yield Layer(f"{role}4", (f"{down}2.conv1_downsample", f"{other}conv4_downsample"), 4, last, kind="halves")
        yield Layer(f"{role}5", (f"{down}2.conv2", f"{other}conv5"), last, 8)
        if role == "x":
            yield Layer("x6", ("stage2.conv_conv_bn1", "xconv6"), 8, 8)
            for index in range(4):
                names = (f"stage2.conv_conv_bn{index + 2}", f"xconv{index + 7}_atrous")
                yield Layer(f"x{index + 7}", names, 8, 8, dilation=2 << index)
    yield Layer("p6", ("stage2.ca_conv_bn1", "pmconv6"), 8, 8, kind="relu")
    yield Layer("p9", ("stage2.ca_conv_bn4", "pmconv9"), 8, 8)
    yield Layer("p10", ("stage2.ca_conv_bn5", "pmconv10"), 8, 8)
    yield Layer("a11", ("stage2.conv_bn6", "allconv11"), 16, 8)
    yield Layer("a12", ("stage2.conv_bn7", "allconv12"), 8, 8)
    yield from _decoder("a", "stage2", "all")


def _decoder(role: str, stage: str, other: str) -> Iterator[Layer]:
    up = f"{stage}.up_block"
    yield Layer(f"{role}13", (f"{up}1.conv1_upsample.conv", f"{other}conv13_upsample.conv"), 8, 4, kind="doubles")
    yield Layer(f"{role}14", (f"{up}1.conv2", f"{other}conv14"), 4, 4)
    yield Layer(f"{role}15", (f"{up}2.conv1_upsample.conv", f"{other}conv15_upsample.conv"), 4, 2, kind="doubles")
    yield Layer(f"{role}16", (f"{up}2.conv2", f"{other}conv16"), 2, 1)
    yield Layer(f"{role}17", (f"{stage}.conv_to_rgb", f"{other}conv17"), 1, 0, kind="colours")


class GatedConv(nn.Module):
    """A convolution whose second half of channels gates the first; nipponjo's last layers, to colours, have no gate."""

    def __init__(self, layer: Layer, options: DeepFillV2Options) -> None:
        super().__init__()
        csq = options.layout == "csqiangwen"
        width = options.cnum // (2 if csq else 4)
        colours = layer.kind == "colours"
        self.doubles, self.colours, self.gated = layer.kind == "doubles", colours, csq or not colours
        self.late = options.layout == "networks_tf" and layer.kind == "halves"
        self.activation = _activation(layer, options)
        into = {0: 4 if csq else 5, -1: 4 if csq else 3}.get(layer.into, layer.into * width)
        out = (3 if colours else layer.out * width) * (2 if self.gated else 1)
        padding = 0 if self.late else layer.dilation * (layer.side // 2)
        stride = 2 if layer.kind == "halves" else 1
        self.conv = nn.Conv2d(into, out, layer.side, stride=stride, padding=padding, dilation=layer.dilation)

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to N×C'×H'×W'; colours are FP32."""
        if self.doubles:
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
        y = self.conv(F.pad(x, (0, 1, 0, 1)) if self.late else x)
        y = y.float() if self.colours else y
        if self.gated:
            features, gate = y.chunk(2, 1)
            y = self.activation(features) * torch.sigmoid(gate)
        return torch.tanh(y) if self.colours else cast("Tensor", y)


def _activation(layer: Layer, options: DeepFillV2Options) -> nn.Module:
    if layer.kind == "colours":
        return nn.Identity()
    if layer.kind == "relu":
        return nn.ReLU()
    return nn.ELU() if options.activation == "elu" else nn.LeakyReLU(0.2)


class DeepFillV2Net(nn.Module):
    """Both stages under the names of the public file; csqiangwen's pairs of convolutions are one each."""

    def __init__(self, options: DeepFillV2Options) -> None:
        super().__init__()
        self.white = options.layout == "csqiangwen"
        self.sampling: Sampling = "aligned" if options.layout == "networks_tf" else "plain"
        self.names = {layer.role: layer.name(options.layout) for layer in layers()}
        for layer in layers():
            _put(self, self.names[layer.role], GatedConv(layer, options))
        attention = ContextualAttention(
            (4 if self.white else 2) * options.cnum,
            fuse=options.layout != "networks_tf",
            sampling=self.sampling,
            soft_norm=self.white,
        )
        self.attention_name = "stage2.contextual_attention" if options.layout == "networks" else "attention"
        _put(self, self.attention_name, attention)

    def through(self, role: str, numbers: tuple[int, ...], x: Tensor) -> Tensor:
        """Apply the layers of a branch in their order."""
        for number in numbers:
            x = self.get_submodule(self.names[f"{role}{number}"])(x)
        return x

    def attend(self, features: Tensor, mask: Tensor) -> Tensor:
        """Apply contextual attention; the mask has the picture's size."""
        small = halve(mask, self.sampling, 8)
        return cast("Tensor", self.get_submodule(self.attention_name)(features, small)).to(features.dtype)

    def forward(self, image: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Map image and mask, FP32, to the coarse and the refined picture, FP32; see the module's docstring."""
        kind, known = compute_type(self), image * (1 - mask)
        seen = [known + mask, mask] if self.white else [known, torch.ones_like(mask), mask]
        coarse = self.through("c", tuple(range(1, 18)), torch.cat(seen, 1).to(kind))
        pasted = coarse * mask + known
        pasted = (torch.cat([pasted, mask], 1) if self.white else pasted).to(kind)
        plain = self.through("x", tuple(range(1, 11)), pasted)
        attended = self.attend(self.through("p", tuple(range(1, 7)), pasted), mask)
        joined = torch.cat([plain, self.through("p", (9, 10), attended)], 1)
        return coarse, self.through("a", tuple(range(11, 18)), joined)


def _put(root: nn.Module, name: str, module: nn.Module) -> None:
    """Register a module under a dotted name, and create its parents."""
    *parents, last = name.split(".")
    for parent in parents:
        if parent not in dict(root.named_children()):
            root.add_module(parent, nn.Module())
        root = root.get_submodule(parent)
    root.add_module(last, module)
