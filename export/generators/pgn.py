"""Progressive generative networks with an LSTM, layout of crashmoon/Progressive-Generative-Networks.

Zhang et al., "Semantic Image Inpainting with Progressive Generative Networks", ACM MM 2018.

Net:      N×3×128×128 in [0, 1] with the centred 64×64 hole painted over, to the same with the hole filled.
Contract: image and mask N×1×128×128 (1 = fill). The net takes no mask, its hole is fixed: pixels that the mask
          marks elsewhere are painted over too, so that the net never sees what is to be replaced.
"""

from __future__ import annotations

from typing import Literal, cast

import torch
import torch.nn.functional as F  # noqa: N812 (torch's own name for it)
from pydantic import Field
from torch import Tensor, nn

from engines.manifest import FixedSize
from export.generators.family import Bars, Family, GeneratorOptions, Interface, State, image_tensor
from export.lowering import compute_type, lower_norms

SIDE, HOLE = 128, 64
MARGIN = (SIDE - HOLE) // 2
FILL = (0.45703125, 0.40625, 0.48046875)
"""The colour that the public training script paints into the hole, RGB in [0, 1]."""


class PGNOptions(GeneratorOptions):
    """The options that distinguish nets of this family."""

    stages: Literal[2, 4] = 4
    width: int = Field(64, ge=1, le=256, description="channels of the first convolution")


def _down_block(into: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.LeakyReLU(0.2), nn.Conv2d(into, out, 4, 2, 1, bias=False), nn.BatchNorm2d(out))


def _up_block(into: int, out: int) -> nn.Sequential:
    return nn.Sequential(nn.ReLU(), nn.ConvTranspose2d(into, out, 4, 2, 1, bias=False), nn.BatchNorm2d(out))


class StageUNet(nn.Module):
    """One stage: a U-Net down to 1×1, joined there by the memory of the earlier stages, and up with skips."""

    def __init__(self, channels: int, width: int, memory: int) -> None:
        super().__init__()
        w = width
        self.start = nn.Conv2d(channels, w, 3, 1, 1)
        downs = [w, w, 2 * w, 4 * w, 8 * w, 8 * w, 8 * w, 8 * w]
        for index in range(7):
            self.add_module(f"conv{index}", _down_block(downs[index], downs[index + 1]))
        ups = [(8 * w + memory, 8 * w), (16 * w, 8 * w), (16 * w, 8 * w), (16 * w, 4 * w), (8 * w, 2 * w), (4 * w, w)]
        for index, (into, out) in zip(range(5, -1, -1), ups, strict=True):
            self.add_module(f"up{index}", _up_block(into, out))
        self.end = _up_block(2 * w, 3)

    def forward(self, x: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor]:
        """Map N×C×128×128 and the memory N×M to N×3×128×128 in [0, 1] and the bottleneck N×8w."""
        x = self.start(x)
        skips = []
        for index in range(7):
            x = self.get_submodule(f"conv{index}")(x)
            skips.append(x)
        bottom = skips.pop()
        y = bottom if memory is None else torch.cat([memory[:, :, None, None].to(bottom.dtype), bottom], 1)
        y = self.get_submodule("up5")(y)
        for index in range(4, -1, -1):
            y = self.get_submodule(f"up{index}")(torch.cat([y, skips.pop()], 1))
        return torch.sigmoid(self.end(torch.cat([y, skips.pop()], 1))), bottom.flatten(1)


class PGNNet(nn.Module):
    """The public Net_G: one U-Net per stage, and an LSTM cell that carries memory between them."""

    rnn: nn.Module

    def __init__(self, options: PGNOptions) -> None:
        super().__init__()
        self.stages, hidden = options.stages, 16 * options.width
        for stage in range(1, self.stages + 1):
            unet = StageUNet(6 if stage > 1 else 3, options.width, hidden if stage > 1 else 0)
            self.add_module(f"unet_{stage}", unet)
        self.rnn = nn.LSTMCell(8 * options.width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Map N×3×128×128 in [0, 1], hole painted over, to the last stage's picture."""
        return self.pictures(x)[-1]

    def pictures(self, x: Tensor) -> list[Tensor]:
        """Map the input of `forward` to the picture of every stage."""
        y, bottom = self.get_submodule("unet_1")(x, None)
        state: tuple[Tensor, Tensor] | None = None
        pictures = [y]
        for stage in range(2, self.stages + 1):
            state = self.rnn(bottom, state)
            y, bottom = self.get_submodule(f"unet_{stage}")(torch.cat([x, y], 1), state[0])
            pictures.append(y)
        return pictures


class LoweredCell(nn.Module):
    """The LSTM cell as two linear layers; gates and cell state are FP32, because they accumulate over the stages."""

    def __init__(self, cell: nn.LSTMCell) -> None:
        super().__init__()
        self.hidden = cell.hidden_size
        self.from_input, self.from_state = nn.Linear(1, 1), nn.Linear(1, 1)
        for linear, weight, bias in (
            (self.from_input, cell.weight_ih, cell.bias_ih),
            (self.from_state, cell.weight_hh, cell.bias_hh),
        ):
            linear.weight, linear.bias = (nn.Parameter(t.detach().clone(), requires_grad=False) for t in (weight, bias))

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
        """Map N×I and the state (FP32), or None for zeros, to the next state."""
        kind = self.from_input.weight.dtype
        gates = self.from_input(x.to(kind)).float()
        gates = gates + (self.from_state.bias.float() if state is None else self.from_state(state[0].to(kind)).float())
        write, forget, value, read = gates.split(self.hidden, 1)
        cell = torch.sigmoid(write) * torch.tanh(value)
        if state is not None:
            cell = cell + torch.sigmoid(forget) * state[1]
        return torch.sigmoid(read) * torch.tanh(cell), cell


class CentreHoleContract(nn.Module):
    """The net behind the tensor contract, with its fixed hole in the centre."""

    centre: Tensor
    fill: Tensor

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        self.register_buffer("centre", F.pad(torch.ones(1, 1, HOLE, HOLE), (MARGIN,) * 4))
        self.register_buffer("fill", torch.tensor(FILL).view(1, 3, 1, 1))

    def forward(self, image: Tensor, mask: Tensor) -> Tensor:
        """Map image and mask of the tensor contract to the output; see the module's docstring."""
        hidden = torch.maximum(mask, self.centre)
        painted = image * (1 - hidden) + self.fill * hidden
        return cast("Tensor", self.net(painted.to(compute_type(self.net))).float())


class PGN(Family[PGNOptions]):
    """PGN + LSTM nets of two and four stages."""

    name = "pgn"
    summary = "progressive generative networks + LSTM (Zhang et al. 2018), layout of crashmoon"
    options = PGNOptions

    def recognise(self, state: State) -> PGNOptions | None:
        """Recognise the stages' first convolutions and the LSTM cell."""
        stages = sum(f"unet_{stage}.start.weight" in state for stage in range(1, 6))
        if stages not in (2, 4) or "rnn.weight_ih" not in state or "unet_1.start.weight" not in state:
            return None
        return PGNOptions.model_validate({"stages": stages, "width": state["unet_1.start.weight"].shape[0]})

    def build(self, options: PGNOptions) -> nn.Module:
        return PGNNet(options)

    def interface(self, options: PGNOptions) -> Interface:  # noqa: ARG002 (all nets of the family have it)
        side = (SIDE, SIDE)
        return Interface(
            task="inpaint",
            inputs=(image_tensor("image", 3, side=side), image_tensor("mask", 1, side=side)),
            output=image_tensor("output", 3, side=side),
            size=FixedSize(height=SIDE, width=SIDE, fit="crop", hole=(MARGIN, MARGIN, MARGIN + HOLE, MARGIN + HOLE)),
        )

    def bars(self, options: PGNOptions) -> Bars:  # noqa: ARG002 (as above)
        """Allow more deviation: rounding adds up over two to four chained nets."""
        return Bars(fp32_max_abs=2e-4, fp16_psnr_db=40)

    def wrap(self, net: nn.Module, options: PGNOptions) -> nn.Module:  # noqa: ARG002 (the net knows them)
        return CentreHoleContract(net)

    def lower(self, net: nn.Module, options: PGNOptions) -> nn.Module:  # noqa: ARG002 (as above)
        lowered = lower_norms(cast("PGNNet", net))
        lowered.rnn = LoweredCell(cast("nn.LSTMCell", lowered.rnn))
        return CentreHoleContract(lowered).eval()
