"""MI-GAN behind the tensor contract and rewritten for a graph; see net.py.

Contract: image N×3×R×R in [0, 1], mask N×1×R×R with 1 = FILL; output N×3×R×R on the [0, 1] scale, not clamped.
"""

from __future__ import annotations

import copy
import re
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

from engines.manifest import FixedSize
from export.errors import LayoutMismatch
from export.generators.family import Bars, Family, Interface, State, Translation, image_tensor
from export.generators.migan.net import (
    BOTTOM,
    GAIN,
    EncoderBlock,
    MIGANNet,
    MIGANOptions,
    SeparableConv,
    Upsample,
    leak,
)
from export.generators.migan.shifted_sums import shift_depthwise
from export.lowering import compute_type

_TRAINING_KEYS = re.compile(r"\.w\d+$|\.conv[12]\.conv2\.noise_const$")
"""Keys of upstream's training net, whose weights are summed and normalised at every call."""
PUBLIC_FILTER = torch.outer(torch.tensor([1.0, 3.0, 3.0, 1.0]), torch.tensor([1.0, 3.0, 3.0, 1.0])) / 16
"""The filter of the upsampling in every published file; that of the downsampling is a quarter of it."""


class MIGANContract(nn.Module):
    """The net behind the tensor contract; the scaling is FP32."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, image: Tensor, mask: Tensor) -> Tensor:
        """Map image and mask of the tensor contract to the output; see the module's docstring."""
        known = 1 - mask
        x = torch.cat([known - 0.5, (image * 2 - 1) * known], 1)
        return cast("Tensor", self.net(x.to(compute_type(self.net))).float() * 0.5 + 0.5)


class ZeroBorderBilinear(nn.Module):
    """Doubles height and width as the filter [1, 3, 3, 1]⊗[1, 3, 3, 1]/16 does: bilinearly, with zeros outside."""

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to N×C×2H×2W."""
        y = F.interpolate(F.pad(x, (1, 1, 1, 1)), scale_factor=2.0, mode="bilinear", align_corners=False)
        return y[:, :, 2:-2, 2:-2]


class LoweredConv(nn.Module):
    """A `SeparableConv` for the graph: the activations' √2 is folded into the weights, and noise is one constant."""

    noise: Tensor | None

    def __init__(self, layer: SeparableConv) -> None:
        super().__init__()
        self.depthwise = _amplified(layer.conv1)
        self.down = nn.Identity() if layer.downsample is None else copy.deepcopy(layer.downsample.filter)
        self.pointwise = _amplified(layer.conv2)
        self.up = nn.Identity() if layer.upsample is None else _lowered_doubling(layer.upsample)
        noise = layer.noise_const * layer.noise_strength * GAIN if layer.has_noise else None
        self.register_buffer("noise", noise)

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to N×C'×H'×W'."""
        x = self.up(self.pointwise(self.down(leak(self.depthwise(x)))))
        return leak(x if self.noise is None else x + self.noise.to(x.dtype))


def _amplified(conv: nn.Conv2d) -> nn.Conv2d:
    """Copy a convolution with its weights times √2, a factor that a leaky ReLU preserves."""
    copied = copy.deepcopy(conv)
    for parameter in copied.parameters():
        parameter.data = parameter.data * GAIN
    return copied


def _lowered_doubling(layer: Upsample) -> nn.Module:
    """Return the form of an upsampling that was fastest on two CPU cores.

    With the public nets' filter it is a bilinear enlargement, for which every engine has a kernel. With any other it is
    a transposed convolution with the filter rotated by 180°, a quarter of the public form's work.
    """
    weight = layer.filter.weight.detach()
    if torch.equal(weight, PUBLIC_FILTER.expand_as(weight)):
        return ZeroBorderBilinear()
    channels = layer.filter.out_channels
    conv = nn.ConvTranspose2d(channels, channels, 4, stride=2, padding=1, groups=channels, bias=False)
    conv.weight = nn.Parameter(weight.flip(2, 3).clone(), requires_grad=False)
    return conv


def _lower_layers(module: nn.Module) -> None:
    """Replace separable convolutions and upsamplings by their lowered forms, in place."""
    for name, child in list(module.named_children()):
        if isinstance(child, SeparableConv):
            setattr(module, name, LoweredConv(child))
        elif isinstance(child, Upsample):
            setattr(module, name, _lowered_doubling(child))
        else:
            _lower_layers(child)


def _keeps_every_second(grid: Tensor) -> bool:
    kept = torch.zeros_like(grid)
    kept[..., ::2, ::2] = 1
    return torch.equal(grid, kept)


class MIGAN(Family[MIGANOptions]):
    """MI-GAN's inference nets of any resolution."""

    name = "migan"
    summary = "MI-GAN (Sargsyan et al. 2023), layout of Picsart-AI-Research/MI-GAN"
    options = MIGANOptions

    def recognise(self, state: State) -> MIGANOptions | None:
        """Recognise the encoder's blocks; their biases give the widths."""
        widths: list[int] = []
        while (key := f"encoder.b{BOTTOM << len(widths)}.conv1.conv1.bias") in state:
            widths.append(state[key].shape[0])
        if len(widths) < 2 or "synthesis.b4.torgb.bias" not in state:
            return None
        return MIGANOptions(widths=",".join(map(str, reversed(widths))))

    def build(self, options: MIGANOptions) -> nn.Module:
        return MIGANNet(options)

    def translate(self, state: State, options: MIGANOptions) -> Translation:  # noqa: ARG002 (the keys say all)
        """Check that this is the inference net, with the grid of kept pixels that doubling assumes.

        Raises:
            LayoutMismatch: the file is a training checkpoint, or has another grid.
        """
        if any(map(_TRAINING_KEYS.search, state)):
            raise LayoutMismatch(
                "this is a net in training, whose weights upstream still sums and normalises: convert it with "
                "upstream's scripts/export_inference_model.py and export its result"
            )
        for key, tensor in state.items():
            if key.endswith("filter_const") and tensor.dim() == 4 and not _keeps_every_second(tensor):
                raise LayoutMismatch(f"{key} keeps other pixels than every second, which no public net does")
        return Translation(state)

    def bars(self, options: MIGANOptions) -> Bars:  # noqa: ARG002 (all nets of the family have them)
        return Bars(fill_levels=1)

    def interface(self, options: MIGANOptions) -> Interface:
        side = (options.resolution, options.resolution)
        return Interface(
            task="inpaint",
            inputs=(image_tensor("image", 3, side=side), image_tensor("mask", 1, side=side)),
            output=image_tensor("output", 3, side=side),
            size=FixedSize(height=side[0], width=side[1], fit="crop", padding="symmetric"),
        )

    def wrap(self, net: nn.Module, options: MIGANOptions) -> nn.Module:  # noqa: ARG002 (the net knows them)
        return MIGANContract(net)

    def lower(self, net: nn.Module, options: MIGANOptions) -> nn.Module:  # noqa: ARG002 (as above)
        lowered = copy.deepcopy(cast("MIGANNet", net)).requires_grad_(requires_grad=False)
        _lower_layers(lowered)
        first = cast("EncoderBlock", next(lowered.encoder.children()))
        first.fromrgb, first.activate = _amplified(first.fromrgb), leak
        return MIGANContract(lowered).eval()

    def lower_for_program(self, net: nn.Module, options: MIGANOptions) -> nn.Module:
        """Replace depthwise convolutions, half of the net's layers, by sums of shifted features, which a GPU fuses."""
        return shift_depthwise(self.lower(net, options))
