"""Exact forms of lowered LaMa for torch.compile that a GPU has still to choose from.

    python -m benchmarks.gpu_engines.lama_forms FOLDER big_lama_512 [FORM …]

Beside FOLDER/big_lama_512/1, which engine_models.py writes, it writes FOLDER/big_lama_512-FORM/1: the same net, graph
and reference with another program.pt2. compare.py measures both (`--models`). All have the Fourier transform in
channels-last memory, as two products each way, and 1×1 convolutions as products:

joined    otherwise as export/generators/lama/lowered.py
split     local and global features apart: one convolution for each input
padded    split, and features keep their reflected border, which the transform's matrices skip
pixels    padded, with transposed convolutions as a convolution to four times the channels and a shuffle
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from torch import Tensor, nn

from benchmarks.gpu_engines.engine_models import MODELS, REFERENCE_FILE
from benchmarks.gpu_engines.family_cases import build_net
from engines.manifest import MANIFEST_FILE, ONNX_FILE, read_manifest
from export.generators import FAMILIES
from export.generators.lama.fourier import fourier_matrices
from export.generators.lama.lowered import LoweredBlock, LoweredLaMa, LoweredLayer, LoweredSpectral
from export.generators.lama.net import output_activation
from export.lowering import compute_type
from export.program import PROGRAM_FILE, write_program

FORMS = ("joined", "split", "padded", "pixels")
Pair = tuple[Tensor, Tensor]
"""Local and global features, N×C×H×W."""


class Products:
    """The transform of N×H×W×C in two products, real and imaginary parts as two blocks of channels."""

    def __init__(self, x: Tensor, border: int) -> None:
        """Make the matrices for N×C×H×W; of features with a border, they give that border no weight."""
        inner = x[:, :, border : x.shape[2] - border, border : x.shape[3] - border]
        self.height, self.width = inner.shape[2:]
        made, height = fourier_matrices(inner), self.height
        cos, sin = made.rows[:height, :height], made.rows[:height, height:]
        real, imaginary = made.columns_real.t(), made.columns_imaginary.t()
        rows = torch.stack([cos, sin], 1)  # H×2×H
        of_real, of_imaginary = torch.stack([real, imaginary], 1), torch.stack([imaginary, -real], 1)
        columns = torch.stack([of_real, of_imaginary], 1)  # K×2×2×W
        if border:
            rows, columns = F.pad(rows, (border, border)), F.pad(columns, (border, border))
        self.rows, self.columns = rows.reshape(2 * height, -1), columns.reshape(2 * real.shape[0], -1)
        back_real, back_imaginary = made.back_real, made.back_imaginary
        left, right = torch.stack([back_real, back_imaginary], 1), torch.stack([back_imaginary, -back_real], 1)
        self.columns_back = torch.stack([left, right], 2).reshape(2 * real.shape[0], 2 * self.width).t()
        self.rows_back = torch.stack([cos, sin], 2).reshape(height, 2 * height)

    def forward(self, y: Tensor) -> Tensor:
        """Transform N×H×W×C to N×H×K×2C."""
        number, height, width, channels = y.shape
        by_rows = torch.matmul(self.rows, y.reshape(number, height, width * channels))
        by_rows = by_rows.reshape(number * self.height, 2 * width, channels)
        return torch.matmul(self.columns, by_rows).reshape(number, self.height, -1, 2 * channels)

    def back(self, spectrum: Tensor) -> Tensor:
        """Transform N×H×K×2C to N×H×W×C."""
        number, height, columns, channels = spectrum.shape
        pairs = spectrum.reshape(number * height, 2 * columns, channels // 2)
        by_columns = torch.matmul(self.columns_back, pairs).reshape(number, 2 * height, -1)
        return torch.matmul(self.rows_back, by_columns).reshape(number, height, self.width, channels // 2)


class Spectral(nn.Module):
    """A spectral transform from N×H×W×C, perhaps with a border, to N×H×W×C without."""

    def __init__(self, spectral: LoweredSpectral, border: int) -> None:
        super().__init__()
        if spectral.tiles is not None:
            raise SystemExit("these forms are of nets without local Fourier units")
        self.first, self.last = _linear(spectral.first), _linear(spectral.last)
        channels = spectral.first.out_channels
        blocks = torch.arange(2 * channels).view(channels, 2).t().reshape(-1)  # the parts of each channel, in turn
        self.unit, self.border = _linear(spectral.unit.conv, blocks), border

    def forward(self, x: Tensor, products: Products) -> Tensor:
        y = torch.relu(self.first(x))
        z = products.back(torch.relu(self.unit(products.forward(y))))
        inner = y[:, self.border : -self.border, self.border : -self.border] if self.border else y
        return cast("Tensor", self.last(inner + z))


class JoinedLayer(nn.Module):
    """A layer on local and global features in one tensor, with the weights of a `LoweredLayer`."""

    def __init__(self, layer: LoweredLayer) -> None:
        super().__init__()
        self.to_local, self.to_global, self.local = layer.to_local, layer.to_global, layer.local
        self.spectral = Spectral(layer.spectral, 0)

    def forward(self, x: Tensor, products: Products) -> Tensor:
        wide = _wide(x)
        seen = self.spectral(x.permute(0, 2, 3, 1)[..., self.local :], products).permute(0, 3, 1, 2)
        return torch.relu(torch.cat([self.to_local(wide), self.to_global(wide[:, : self.local]) + seen], 1))


class JoinedBlock(nn.Module):
    """Two layers and a residual."""

    def __init__(self, block: LoweredBlock) -> None:
        super().__init__()
        self.first, self.second = JoinedLayer(block.first), JoinedLayer(block.second)

    def forward(self, x: Tensor, products: Products) -> Tensor:
        return cast("Tensor", x + self.second(self.first(x, products), products))


class SplitLayer(nn.Module):
    """Local and global features apart; with a border the transform reads what the convolutions read."""

    def __init__(self, layer: LoweredLayer, border: int) -> None:
        super().__init__()
        local = self.local = layer.local
        self.border = border
        self.of_local = _conv(
            torch.cat([layer.to_local.weight[:, :local], layer.to_global.weight]),
            torch.cat([cast("Tensor", layer.to_local.bias), cast("Tensor", layer.to_global.bias)]),
        )
        self.of_global = _conv(layer.to_local.weight[:, local:], None)
        self.spectral = Spectral(layer.spectral, border)

    def forward(self, pair: Pair, products: Products) -> Pair:
        """Map features, with the border if the layer has one, to features without."""
        wide_local, wide_global = pair if self.border else (_wide(pair[0]), _wide(pair[1]))
        first, second = self.of_local(wide_local), self.of_global(wide_global)
        seen = self.spectral(pair[1].permute(0, 2, 3, 1), products).permute(0, 3, 1, 2)
        return torch.relu(first[:, : self.local] + second), torch.relu(first[:, self.local :] + seen)


class SplitBlock(nn.Module):
    """Two layers and a residual."""

    def __init__(self, block: LoweredBlock, border: int) -> None:
        super().__init__()
        self.border = border
        self.first, self.second = SplitLayer(block.first, border), SplitLayer(block.second, border)

    def forward(self, pair: Pair, products: Products) -> Pair:
        """Map features to features, both with the border if the layers have one."""
        a, b = pair
        for layer in (self.first, self.second):
            a, b = layer((a, b), products)
            a, b = (_wide(a), _wide(b)) if self.border else (a, b)
        return pair[0] + a, pair[1] + b


class Pixels(nn.Module):
    """A transposed convolution of kernel 3, stride 2, padding 1 and output padding 1."""

    def __init__(self, up: nn.ConvTranspose2d) -> None:
        super().__init__()
        into, out = up.weight.shape[:2]
        taps = torch.zeros(2, 3, 2)  # row of the output's two, row of the kernel, row of the input: itself, the next
        taps[0, 1, 0] = taps[1, 2, 0] = taps[1, 0, 1] = 1
        weight = torch.einsum("iokl,akp,blq->oabipq", up.weight.detach(), taps, taps).reshape(4 * out, into, 2, 2)
        self.conv = _conv(weight, cast("Tensor", up.bias).detach().repeat_interleave(4))

    def forward(self, x: Tensor) -> Tensor:
        return F.pixel_shuffle(self.conv(F.pad(x, (0, 1, 0, 1))), 2)


class Form(nn.Module):
    """A lowered net in another form."""

    def __init__(self, lowered: LoweredLaMa, form: str) -> None:
        super().__init__()
        if lowered.outer is not None:
            raise SystemExit("these forms are of nets without an outer Fourier block")
        blocks = [cast("LoweredBlock", block) for block in lowered.blocks]
        self.joined, self.border = form == "joined", int(form in ("padded", "pixels"))
        self.down, self.last, self.output, self.local = (
            lowered.down,
            lowered.last,
            lowered.output,
            blocks[0].first.local,
        )
        made = [JoinedBlock(block) if self.joined else SplitBlock(block, self.border) for block in blocks]
        self.blocks = nn.ModuleList(made)
        ups = [cast("nn.ConvTranspose2d", up) for up in lowered.up]
        self.up = nn.ModuleList(Pixels(up) if form == "pixels" else up for up in ups)

    def forward(self, image: Tensor, mask: Tensor) -> Tensor:
        """Map what LoweredLaMa maps."""
        x = torch.cat([image * (1 - mask), mask], 1).to(compute_type(self))
        for layer in self.down:
            x = layer(x)
        x = self._through_blocks(x)
        for layer in self.up:
            x = torch.relu(layer(x))
        x = self.last(F.pad(x, (3, 3, 3, 3), mode="reflect"))
        return output_activation(x.float(), self.output)

    def _through_blocks(self, x: Tensor) -> Tensor:
        if self.joined:
            products = Products(x, 0)
            for block in self.blocks:
                x = block(x, products)
            return x
        x = _wide(x) if self.border else x
        pair, products = (x[:, : self.local], x[:, self.local :]), Products(x, self.border)
        for block in self.blocks:
            pair = block(pair, products)
        x = torch.cat(pair, 1)
        return x[:, :, 1:-1, 1:-1] if self.border else x


def _linear(conv: nn.Conv2d, order: Tensor | None = None) -> nn.Linear:
    """Make a 1×1 convolution a product over the last axis, its channels in another order."""
    linear = nn.Linear(conv.in_channels, conv.out_channels, bias=conv.bias is not None)
    for name, parameter in conv.named_parameters():
        value = parameter.detach().flatten(1) if name == "weight" else parameter.detach()
        if order is not None:
            value = value[order][:, order] if name == "weight" else value[order]
        setattr(linear, name, nn.Parameter(value.clone(), requires_grad=False))
    return linear


def _conv(weight: Tensor, bias: Tensor | None) -> nn.Conv2d:
    conv = nn.Conv2d(weight.shape[1], weight.shape[0], weight.shape[2], bias=bias is not None)
    conv.weight = nn.Parameter(weight.detach().clone(), requires_grad=False)
    if bias is not None:
        conv.bias = nn.Parameter(bias.detach().clone(), requires_grad=False)
    return conv


def _wide(x: Tensor) -> Tensor:
    return F.pad(x, (1, 1, 1, 1), mode="reflect")


def publish_forms(folder: Path, name: str, forms: list[str]) -> None:
    """Write the forms of a published model beside it, those that are not there, and print where they are."""
    case, source = MODELS[name], folder / name / "1"
    lowered = cast("LoweredLaMa", FAMILIES[case.family].lower(build_net(case), case.parsed))
    for form in forms:
        target = folder / f"{name}-{form}" / "1"
        print(target, flush=True)
        if (target / MANIFEST_FILE).exists():
            continue
        target.mkdir(parents=True, exist_ok=True)
        for file in (ONNX_FILE, REFERENCE_FILE):
            if not (target / file).exists():
                os.link(source / file, target / file)
        write_program(Form(lowered, form), case.interface, "fp16", target / PROGRAM_FILE)
        manifest = read_manifest(source).model_copy(update={"name": target.parent.name})
        (target / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("name", choices=[name for name in MODELS if name.startswith("big_lama")])
    parser.add_argument("forms", nargs="*", default=list(FORMS))
    arguments = parser.parse_args()
    torch.set_grad_enabled(False)
    publish_forms(arguments.folder, arguments.name, arguments.forms)
