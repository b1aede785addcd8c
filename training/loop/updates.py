"""The update of one net: backward with means over processes, Adam, averaged weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from training.config import FitConfig
from training.loop.gradient_buckets import GradientBuckets
from training.loop.replay import Rate
from training.loop.runtime import Runtime

_FIRST_LOSS_SCALE = 2.0**12
"""Initial loss scale in FP16. Each halving skips a step: torch's default of 2¹⁶ skips several with Gram matrices."""


_PART, _COUNT = "module.", "n_averaged"
"""Key prefix and key in the state of an average, as in torch's AveragedModel."""


@dataclass(frozen=True)
class UpdateSettings:
    """The settings of a net's updates, beyond the config's."""

    betas: tuple[float, float]
    """The betas of Adam."""
    clip_norm: float
    """The norm that the whole net's gradient is clipped to; values that are not finite count as 0."""
    bias_rate: float = 1.0
    """The learning rate of biases and gains, as a fraction of that of filters."""

    def part(self, parameter: nn.Parameter) -> float:
        """Return the factor of a parameter's learning rate."""
        return 1.0 if parameter.ndim == 4 else self.bias_rate


class OptimiserUpdates:
    """Fused Adam with loss scaling in FP16; nothing here waits for the device."""

    def __init__(
        self, net: nn.Module, config: FitConfig, runtime: Runtime, settings: UpdateSettings | None = None
    ) -> None:
        self._parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
        self._settings, self._on_gpu = settings, runtime.device.type == "cuda"
        fused = runtime.device.type == "cuda" or not config.deterministic
        members: dict[float, list[nn.Parameter]] = {}
        for parameter in self._parameters:
            members.setdefault(settings.part(parameter) if settings else 1.0, []).append(parameter)
        groups = [{"params": found, "part": part} for part, found in members.items()]
        betas = settings.betas if settings else config.betas
        self._optimiser = torch.optim.Adam(groups, lr=0.0, betas=betas, fused=fused)
        enabled = config.precision == "fp16"
        self._scaler = torch.amp.GradScaler(runtime.device.type, init_scale=_FIRST_LOSS_SCALE, enabled=enabled)
        self._buckets = GradientBuckets(self._parameters, runtime.begin_average if runtime.world > 1 else None)

    def apply(self, loss: Tensor, learning_rate: Rate, gradient: Tensor | None = None, *, hold: bool = False) -> None:
        """Run one optimiser step.

        Args:
            loss: a scalar, or with `gradient` a tensor of its shape.
            learning_rate: the rate of the step.
            gradient: the gradient at `loss`; None if `loss` is a scalar.
            hold: keep the parameters and update only Adam's moments.
        """
        self._optimiser.zero_grad(set_to_none=True)
        with self._buckets.averaging():
            torch.autograd.backward(self._scaler.scale(loss), gradient)
        if self._settings:
            _clip_gradients(self._buckets.gathered(), self._settings.clip_norm)
        recorded = self._on_gpu and torch.cuda.is_current_stream_capturing()
        for group in self._optimiser.param_groups:
            group["lr"] = 0.0 if hold else learning_rate * group["part"]
            group["capturable"] = recorded  # fused Adam refuses a recording without it; results are equal
        self._scaler.step(self._optimiser)
        self._scaler.update()

    def state(self) -> dict[str, Any]:
        """Return the optimiser's state, for `load`."""
        return {"optimiser": self._optimiser.state_dict(), "scaler": self._scaler.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        self._optimiser.load_state_dict(state["optimiser"])
        self._scaler.load_state_dict(state["scaler"])


def _clip_gradients(gradients: list[Tensor], clip_norm: float) -> None:
    """Scale gradients in place to a common norm of at most `clip_norm`; values that are not finite become 0."""
    for gradient in gradients:
        torch.nan_to_num(gradient, 0.0, 0.0, 0.0, out=gradient)
    length = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))  # noqa: SLF001 (its only name)
    torch._foreach_mul_(gradients, (clip_norm / (length + 1e-6)).clamp(max=1))


class WeightAverage:
    """The exponential moving average of a net and its running statistics; its decay is smaller in the first steps.

    Unlike torch's AveragedModel it counts steps on the host, and so does not wait for the device.
    """

    def __init__(self, net: nn.Module, decay: float) -> None:
        self._decay, self._count = decay, 0
        self._net = copy.deepcopy(net).requires_grad_(requires_grad=False).eval()
        self._pairs: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
        for ours, theirs in zip(_tensors(self._net), _tensors(net), strict=True):
            averaged, current = self._pairs.setdefault(ours.dtype, ([], []))
            averaged.append(ours)
            current.append(theirs)

    @property
    def net(self) -> nn.Module:
        """The averaged net, in eval mode."""
        return self._net

    @torch.no_grad()
    def update(self) -> None:
        """Update the average with the net's weights; the first update takes them as they are."""
        decay = min(self._decay, (1 + self._count) / (10 + self._count))
        for averaged, current in self._pairs.values():
            if self._count:
                cast("Callable[[float], Callable[..., None]]", get_ema_multi_avg_fn)(decay)(averaged, current, None)
            else:
                torch._foreach_copy_(averaged, current)
        self._count += 1

    def state(self) -> dict[str, Any]:
        """Return the average's state, for `load`."""
        averaged = {f"{_PART}{name}": tensor for name, tensor in self._net.state_dict().items()}
        return averaged | {_COUNT: torch.tensor(self._count)}

    def load(self, state: dict[str, Any]) -> None:
        self._net.load_state_dict({key.removeprefix(_PART): value for key, value in state.items() if key != _COUNT})
        self._count = int(state[_COUNT])


def _tensors(net: nn.Module) -> list[Tensor]:
    return [*net.parameters(), *net.buffers()]
