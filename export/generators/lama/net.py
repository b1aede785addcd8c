"""The FFC generator in the layout of advimman/lama, and its options.

Suvorov et al., "Resolution-robust Large Mask Inpainting with Fourier Convolutions", WACV 2022; Chi et al., "Fast
Fourier Convolution", NeurIPS 2020. Features are split into a local and a global part; the global part also passes a
convolution of its spectrum, which sees the whole picture.
"""

from __future__ import annotations

from typing import Literal, cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from pydantic import Field, model_validator
from torch import Tensor, nn

from export.generators.family import GeneratorOptions

_MAX_FEATURES = 1024
_TILES = 2
"""Tiles of a local Fourier unit: it cuts the picture into 2×2."""


class LaMaOptions(GeneratorOptions):
    """The options that distinguish nets of this family; `output` cannot be seen in a file."""

    ngf: int = Field(64, ge=2, le=512, description="channels of the first layer")
    downsamplings: int = Field(3, ge=1, le=5, description="halvings before the blocks")
    blocks: int = Field(18, ge=1, le=64, description="residual blocks of Fourier convolutions")
    ratio: float = Field(0.75, gt=0, lt=1, description="share of the blocks' features that are global")
    lfu: bool = Field(default=False, description="local Fourier units beside the global ones")
    out_ratio: float = Field(0, ge=0, lt=1, description="the same of one more block before the last layer; 0 for none")
    out_lfu: bool = Field(default=False, description="local Fourier units in that block")
    output: Literal["sigmoid", "tanh", "none"] = Field(
        "sigmoid", description="last activation, `add_out_act` of the training's configuration (true is tanh)"
    )

    @model_validator(mode="after")
    def _parts_are_whole(self) -> LaMaOptions:
        for channels, ratio, lfu in ((self.features, self.ratio, self.lfu), (self.ngf, self.out_ratio, self.out_lfu)):
            spectral = global_part(channels, ratio) // 2
            if ratio and (spectral < 1 or global_part(channels, ratio) == channels or (lfu and spectral % _TILES**2)):
                raise ValueError(f"{channels} channels cannot be split with a ratio of {ratio:g}")
        return self

    @property
    def features(self) -> int:
        """The channels of the blocks."""
        return self.width(self.downsamplings)

    def width(self, level: int) -> int:
        """Return the number of channels after that many halvings."""
        return min(_MAX_FEATURES, self.ngf << level)

    @property
    def multiple(self) -> int:
        """Divisor of height and width: upstream pads to 8, and local Fourier units need even features."""
        return int(max(8, 1 << (self.downsamplings + self.lfu)))


def global_part(channels: int, ratio: float) -> int:
    """Return how many of the channels are global; `ratio` is their exact share."""
    return round(channels * ratio)


class FourierUnit(nn.Module):
    """A 1×1 convolution of the spectrum, whose real and imaginary parts are alternating channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv_layer = nn.Conv2d(2 * channels, 2 * channels, 1, bias=False)
        self.bn = nn.BatchNorm2d(2 * channels)

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to the same shape."""
        spectrum = torch.view_as_real(torch.fft.rfft2(x, norm="ortho"))
        parts = spectrum.movedim(-1, 2).flatten(1, 2)
        parts = torch.relu(self.bn(self.conv_layer(parts)))
        n, channels, *size = parts.shape
        spectrum = torch.view_as_complex(parts.view(n, channels // 2, 2, *size).movedim(2, -1).contiguous())
        y: Tensor = torch.fft.irfft2(spectrum, s=x.shape[-2:], norm="ortho")
        return y


def tiles_as_channels(x: Tensor) -> Tensor:
    """Stack the 2×2 tiles of the first quarter of the channels, column by column: N×C×H×W to N×C×H/2×W/2."""
    part, height, width = x[:, : x.shape[1] // _TILES**2], x.shape[2] // _TILES, x.shape[3] // _TILES
    rows = torch.cat([part[:, :, :height], part[:, :, height:]], 1)
    return torch.cat([rows[..., :width], rows[..., width:]], 1)


class SpectralTransform(nn.Module):
    """A Fourier unit between two 1×1 convolutions, with a residual; optionally a second unit on 2×2 tiles beside it."""

    def __init__(self, channels: int, *, lfu: bool) -> None:
        super().__init__()
        inner = channels // 2
        self.conv1 = nn.Sequential(nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU())
        self.fu = FourierUnit(inner)
        self.lfu = FourierUnit(inner) if lfu else None
        self.conv2 = nn.Conv2d(inner, channels, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to the same shape."""
        y = self.conv1(x)
        total = y + self.fu(y)
        if self.lfu is not None:
            total = total + self.lfu(tiles_as_channels(y)).repeat(1, 1, _TILES, _TILES)
        return cast("Tensor", self.conv2(total))


class FourierConvolution(nn.Module):
    """The convolutions between local and global features; a part without channels has no convolution."""

    def __init__(self, into: tuple[int, int], out: tuple[int, int], kernel: int, stride: int, *, lfu: bool) -> None:
        super().__init__()
        border = kernel // 2 if kernel == 3 else 0  # the first layer's border is a layer of its own
        for name, source, target in (("l2l", into[0], out[0]), ("l2g", into[0], out[1]), ("g2l", into[1], out[0])):
            if source and target:
                conv = nn.Conv2d(source, target, kernel, stride, border, bias=False, padding_mode="reflect")
                self.add_module(f"conv{name}", conv)
        if into[1]:
            self.add_module("convg2g", SpectralTransform(out[1], lfu=lfu))

    def forward(self, local: Tensor, overall: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Map local and global features to local and global features."""
        y = self.get_submodule("convl2l")(local)
        if not hasattr(self, "convl2g"):
            return y, None
        z = self.get_submodule("convl2g")(local)
        if overall is None:
            return y, z
        return y + self.get_submodule("convg2l")(overall), z + self.get_submodule("convg2g")(overall)


class FourierLayer(nn.Module):
    """A Fourier convolution, batch norms and ReLU."""

    bn_g: nn.BatchNorm2d

    def __init__(
        self, into: tuple[int, int], out: tuple[int, int], kernel: int = 3, stride: int = 1, *, lfu: bool = False
    ) -> None:
        super().__init__()
        self.ffc = FourierConvolution(into, out, kernel, stride, lfu=lfu)
        self.bn_l = nn.BatchNorm2d(out[0])
        if out[1]:
            self.bn_g = nn.BatchNorm2d(out[1])

    def forward(self, local: Tensor, overall: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Map local and global features to local and global features."""
        y, z = self.ffc(local, overall)
        return torch.relu(self.bn_l(y)), None if z is None else torch.relu(self.bn_g(z))


class FourierBlock(nn.Module):
    """Two Fourier layers and a residual; the last channels of its features are the global ones."""

    def __init__(self, channels: int, ratio: float, *, lfu: bool) -> None:
        super().__init__()
        self.overall = global_part(channels, ratio)
        split = (channels - self.overall, self.overall)
        self.conv1, self.conv2 = (FourierLayer(split, split, lfu=lfu) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to the same shape."""
        local, overall = x[:, : -self.overall], x[:, -self.overall :]
        return x + torch.cat(self.conv2(*self.conv1(local, overall)), 1)


class LaMaNet(nn.Module):
    """The public generator; `model` has upstream's numbers."""

    def __init__(self, options: LaMaOptions) -> None:
        super().__init__()
        self.output = options.output
        layers: list[nn.Module] = [nn.ReflectionPad2d(3), FourierLayer((4, 0), (options.ngf, 0), 7)]
        for level in range(options.downsamplings):
            width = options.width(level + 1)
            overall = global_part(width, options.ratio) if level + 1 == options.downsamplings else 0
            layers.append(FourierLayer((options.width(level), 0), (width - overall, overall), stride=2))
        layers += [FourierBlock(options.features, options.ratio, lfu=options.lfu) for _ in range(options.blocks)]
        layers.append(nn.Identity())  # where upstream joins local and global features
        for level in range(options.downsamplings, 0, -1):
            into, out = options.width(level), options.width(level - 1)
            layers += [nn.ConvTranspose2d(into, out, 3, 2, 1, output_padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        if options.out_ratio:
            layers.append(FourierBlock(options.ngf, options.out_ratio, lfu=options.out_lfu))
        layers += [nn.ReflectionPad2d(3), nn.Conv2d(options.ngf, 3, 7)]
        self.model = nn.Sequential(*layers)

    def forward(self, image: Tensor, mask: Tensor) -> Tensor:
        """Map an image N×3×H×W in [0, 1] and a mask N×1×H×W (1 = hole) to N×3×H×W."""
        return output_activation(self.features_of(image, mask), self.output)

    def features_of(self, image: Tensor, mask: Tensor) -> Tensor:
        """Return the output before its activation."""
        x: Tensor = torch.cat([image * (1 - mask), mask], 1)
        for layer in self.model:
            if isinstance(layer, FourierLayer):
                local, overall = layer(x)
                x = local if overall is None else torch.cat([local, overall], 1)
            else:
                x = layer(x)
        return x


def output_activation(x: Tensor, name: str) -> Tensor:
    """Apply the last activation."""
    if name == "none":
        return x
    return torch.sigmoid(x) if name == "sigmoid" else F.tanh(x)
