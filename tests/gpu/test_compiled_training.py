"""FillNet compiled by torch on a real GPU, against eager code; `make test-gpu` runs these."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch._functorch.config
from torch import Tensor, nn

from training.config import load_config
from training.fill_config import FillConfig
from training.nets.fillnet import make_net

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("default::UserWarning:torch"),  # the host's torch emits warnings of its own
    pytest.mark.filterwarnings("default::DeprecationWarning:torch"),
]
CONFIG = Path(__file__).resolve().parents[2] / "training/configs/fill-large.toml"


def worst_gradient(device: torch.device, side: int = 256, count: int = 4) -> tuple[float, str]:
    """Return the largest relative error of a compiled gradient against eager code, and the parameter's name."""
    config, random = load_config(CONFIG), torch.Generator().manual_seed(0)
    assert isinstance(config, FillConfig)
    net: nn.Module = make_net(config.generator, random).to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    image = torch.rand(count, 3, side, side, generator=random).to(device)
    hole = (torch.rand(count, 1, side, side, generator=random) < 0.4).float().to(device)

    def gradients(run: Callable[[Tensor, Tensor], Tensor]) -> dict[str, Tensor]:
        net.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            output = run(image, hole)
        torch.autograd.backward(output, torch.ones_like(output) / output.numel())
        return {name: value.grad.clone() for name, value in net.named_parameters() if value.grad is not None}

    torch._functorch.config.donated_buffer = False
    wanted, found = gradients(net), gradients(torch.compile(net, dynamic=False))
    return max((((found[name] - value).norm() / value.norm()).item(), name) for name, value in wanted.items())


def test_compiled_code_has_the_gradients_of_eager_code() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU here")
    torch.compiler.reset()
    far, name = worst_gradient(torch.device("cuda"))
    assert far < 0.4, f"{name}; bf16 itself makes 0.13 of FP32's"
