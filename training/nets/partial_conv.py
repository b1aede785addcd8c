"""The partial-convolution U-Net for training: one mask channel, FP32 ratios computed once per batch, He initialisation.

The same function as `export.generators.pconv.PConvUNet`, under the same keys. The public layer divides by the count of
valid values, this one by the valid fraction of the window. So a public weight is `window` times the weight here, and
the optimiser sees weights of ordinary size. The mask convolutions, which are constant, are left out.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

from export.generators.family import State
from export.generators.pconv.unet import ImageNetScale, PConvOptions, encoder_channels, encoder_kernel

_ALIGNMENT = 8
"""Channels are padded to a multiple of this for tensor cores; 3 or 67 of them would use slower kernels."""
_WEIGHT = ".conv.input_conv.weight"


class LayerMasks(NamedTuple):
    """The mask data of one layer, FP32, N×1×H×W each."""

    mask: Tensor
    """Valid pixels before the layer (of the upsampled features, in a decoder)."""
    skip: Tensor | None
    """Valid pixels of the skip beside them, in a decoder."""
    ratio: Tensor
    """One over the valid fraction of the window; 0 where nothing is valid."""


def layer_masks(valid: Tensor, options: PConvOptions) -> dict[str, LayerMasks]:
    """Compute the mask data of every layer, by layer name.

    Args:
        valid: N×1×H×W FP32, 1 = valid.
        options: the options of the net.

    The valid fraction is a mean and lies in [1/window, 1] wherever it is not 0: the naive window/(sum + 1e-6) exceeds
    FP16 on a hole, and inf·0 is NaN.
    """
    channels, masks, windows = encoder_channels(options), [valid], {}
    for level in range(1, options.levels + 1):
        part = _window_mean(masks[-1], encoder_kernel(level), stride=2)
        windows[f"enc_{level}"] = LayerMasks(masks[-1], None, _reciprocal_or_zero(part))
        masks.append((part > 0).float())
    mask = masks.pop()
    for level in range(options.levels, 0, -1):
        below, skip = F.interpolate(mask, scale_factor=2.0, mode="nearest"), masks.pop()
        deep, shallow = channels[level], channels[level - 1]
        mixed = (deep * _window_mean(below, 3) + shallow * _window_mean(skip, 3)) / (deep + shallow)
        windows[f"dec_{level}"] = LayerMasks(below, skip, _reciprocal_or_zero(mixed))
        mask = (mixed > 0).float()
    return windows


def _window_mean(mask: Tensor, kernel: int, stride: int = 1) -> Tensor:
    return F.avg_pool2d(mask, kernel, stride, kernel // 2)


def _reciprocal_or_zero(part: Tensor) -> Tensor:
    return torch.where(part > 0, 1 / part.clamp(min=1e-6), 0.0)


class _Convolution(nn.Module):
    """A wrapper named `input_conv`, so that keys are those of the public net."""

    def __init__(self, channels: tuple[int, int], kernel: int, stride: int, *, bias: bool) -> None:
        super().__init__()
        self.input_conv = nn.Conv2d(*channels, kernel, stride, kernel // 2, bias=bias)


class PartialLayer(nn.Module):
    """A partial convolution, batch norm except in the outermost layers, and an activation."""

    def __init__(self, channels: tuple[int, int], kernel: int, *, encodes: bool, outermost: bool) -> None:
        super().__init__()
        self.conv = _Convolution(channels, kernel, 2 if encodes else 1, bias=outermost and not encodes)
        self.bn = None if outermost else nn.BatchNorm2d(channels[1])
        self.slope = 0.0 if encodes else 1.0 if outermost else 0.2

    def forward(self, x: Tensor, window: LayerMasks) -> Tensor:
        """Map masked features N×C×H×W to the layer's features; the result's mask is where the ratio is not 0."""
        conv = self.conv.input_conv
        y = _convolve(x, conv) * window.ratio
        if conv.bias is not None:
            y = y + conv.bias.view(1, -1, 1, 1) * (window.ratio > 0)
        if self.slope == 1:
            return y
        y = y.to(x.dtype)
        return F.leaky_relu(y if self.bn is None else self.bn(y), self.slope)


def _convolve(x: Tensor, conv: nn.Conv2d) -> Tensor:
    """Convolve without bias; on a GPU channels are padded with zeros for tensor cores."""
    weight = conv.weight
    if not x.is_cuda:
        return F.conv2d(x, weight, None, conv.stride, conv.padding)
    inner, outer = -weight.shape[1] % _ALIGNMENT, -weight.shape[0] % _ALIGNMENT
    padded = F.conv2d(
        F.pad(x, (0, 0, 0, 0, 0, inner)),
        F.pad(weight, (0, 0, 0, 0, 0, inner, 0, outer)),
        None,
        conv.stride,
        conv.padding,
    )
    return padded[:, : weight.shape[0]]


class PartialUNet(nn.Module):
    """The U-Net `enc_1` … `enc_n`, `dec_n` … `dec_1`, with ImageNet's normalisation around it."""

    def __init__(self, options: PConvOptions) -> None:
        super().__init__()
        self.options, self.scale = options, ImageNetScale()
        channels = encoder_channels(options)
        for level in range(1, options.levels + 1):
            pair = (channels[level - 1], channels[level])
            kernel, outermost = encoder_kernel(level), level == 1
            self.add_module(f"enc_{level}", PartialLayer(pair, kernel, encodes=True, outermost=outermost))
        for level in range(options.levels, 0, -1):
            pair = (channels[level] + channels[level - 1], channels[level - 1])
            self.add_module(f"dec_{level}", PartialLayer(pair, 3, encodes=False, outermost=level == 1))

    def forward(self, image: Tensor, hole: Tensor) -> Tensor:
        """Map an N×3×H×W image in [0, 1] and an N×1×H×W hole (1 = fill) to N×3×H×W on the [0, 1] scale, all FP32."""
        valid = 1 - hole
        with torch.no_grad():
            windows = layer_masks(valid, self.options)
        kind = torch.get_autocast_dtype(image.device.type) if torch.is_autocast_enabled(image.device.type) else None
        x = (self.scale.normalise(image) * valid).to(kind or image.dtype)
        skips = []
        for level in range(1, self.options.levels + 1):
            skips.append(x)
            window = windows[f"enc_{level}"]
            x = self.get_submodule(f"enc_{level}")(x, window) * (window.ratio > 0)
        for level in range(self.options.levels, 0, -1):
            x = torch.cat([F.interpolate(x, scale_factor=2.0, mode="nearest"), skips.pop()], 1)
            window = windows[f"dec_{level}"]
            x = self.get_submodule(f"dec_{level}")(x, window)
            x = x if level == 1 else x * (window.ratio > 0)
        return self.scale.restore(x.float())

    def freeze_norm(self, side: Literal["enc", "dec"]) -> None:
        """Freeze the running statistics of a side's batch norms (`enc`: the paper's second stage) until `train()`."""
        for level in range(2, self.options.levels + 1):
            self.get_submodule(f"{side}_{level}.bn").eval()


def initialise(net: nn.Module, generator: torch.Generator) -> None:
    """Initialise weights as He et al. 2015 for ReLU, from the generator alone, and biases with zero."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, a=0.2, generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def checkpoint_state(net: PartialUNet) -> State:
    """Convert the net's tensors to the layout and scale of published checkpoints, without the mask convolutions."""
    state = {key: tensor.detach() for key, tensor in net.state_dict().items() if not key.startswith("scale.")}
    return {key: tensor * _window_size(tensor) if key.endswith(_WEIGHT) else tensor for key, tensor in state.items()}


def training_state(state: State) -> State:
    """Convert the state dict of a published checkpoint to this net's layout and scale."""
    kept = {key: tensor for key, tensor in state.items() if not key.endswith("mask_conv.weight")}
    return {key: tensor / _window_size(tensor) if key.endswith(_WEIGHT) else tensor for key, tensor in kept.items()}


def _window_size(weight: Tensor) -> int:
    return weight[0].numel()
