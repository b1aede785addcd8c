"""The update of one net: backward, mean over processes, Adam, averaged weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from training.config import FitConfig
from training.loop.runtime import Runtime

_FIRST_LOSS_SCALE = 2.0**12
"""A step is lost for every halving that is still needed; torch's own 2¹⁶ costs several with Gram matrices."""


class Updates:
    """Fused Adam with loss scaling in FP16; nothing here waits for the device."""

    def __init__(self, net: nn.Module, config: FitConfig, runtime: Runtime) -> None:
        self._parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
        fused = runtime.device.type == "cuda" or not config.deterministic
        self._optimiser = torch.optim.Adam(self._parameters, lr=0.0, betas=config.betas, fused=fused)
        enabled = config.precision == "fp16"
        self._scaler = torch.amp.GradScaler(runtime.device.type, init_scale=_FIRST_LOSS_SCALE, enabled=enabled)
        self._runtime = runtime

    def apply(self, loss: Tensor, learning_rate: float) -> None:
        """Run one optimiser step on the loss."""
        self._optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(self._scaler.scale(loss))
        self._runtime.average([p.grad for p in self._parameters if p.grad is not None])
        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate
        self._scaler.step(self._optimiser)
        self._scaler.update()

    def state(self) -> dict[str, Any]:
        """Return the optimiser's state, for `load`."""
        return {"optimiser": self._optimiser.state_dict(), "scaler": self._scaler.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        self._optimiser.load_state_dict(state["optimiser"])
        self._scaler.load_state_dict(state["scaler"])


class Average:
    """The exponential moving average of a net and its running statistics; it adapts faster while it is young."""

    def __init__(self, net: nn.Module, decay: float) -> None:
        self._decay = decay
        self._model = AveragedModel(net, multi_avg_fn=self._move, use_buffers=True)
        self._model.requires_grad_(requires_grad=False).eval()

    def _move(self, averaged: Any, current: Any, count: Any) -> None:
        decay = min(self._decay, (1 + int(count)) / (10 + int(count)))
        cast("Callable[[float], Callable[..., None]]", get_ema_multi_avg_fn)(decay)(averaged, current, count)

    @property
    def net(self) -> nn.Module:
        """The averaged net, in eval mode."""
        return self._model.module

    def update(self, net: nn.Module) -> None:
        """Update the average with the net's weights."""
        self._model.update_parameters(net)

    def state(self) -> dict[str, Any]:
        """Return the average's state, for `load`."""
        return self._model.state_dict()

    def load(self, state: dict[str, Any]) -> None:
        self._model.load_state_dict(state)
