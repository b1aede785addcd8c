"""Losses balanced by the norms of their gradients at the picture, so that their weights are shares.

The gradient of each loss at the generator's output is divided by its norm and multiplied by its share (Défossez et al.,
"High Fidelity Neural Audio Compression", 2022, section 3.4), so that a drift of a loss's scale does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from training.loop.runtime import Runtime

_MEASURED_EVERY, _FIRST_STEPS = 25, 5
_DECAY = 0.7
_EPSILON = 1e-8

Measurement = Literal["none", "anew", "followed"]
"""How a step measures norms: not at all, replacing earlier ones, or by an exponential moving average with them."""


class LossBalancer:
    """Keeps the norm of each loss's gradient; `shares` maps the losses' names to their shares."""

    def __init__(self, shares: Mapping[str, float], runtime: Runtime) -> None:
        self._shares, self._runtime = {name: share for name, share in shares.items() if share > 0}, runtime
        self._sizes = torch.zeros(len(self._shares), device=runtime.device)

    def measurement(self, number: int) -> Measurement:
        """Return how a step measures norms: anew in the first five steps, then averaged in every 25th."""
        if number < _FIRST_STEPS:
            return "anew"
        return "none" if number % _MEASURED_EVERY else "followed"

    def shares(self, ramps: Mapping[str, float]) -> Tensor:
        """Return the losses' shares on the device; `ramps` maps some losses to factors of their shares."""
        shares = [share * ramps.get(name, 1.0) for name, share in self._shares.items()]
        return torch.tensor(shares).to(self._sizes, non_blocking=True)

    def gradient(
        self, losses: Mapping[str, Tensor], picture: Tensor, shares: Tensor, measurement: Measurement
    ) -> Tensor:
        """Return the balanced gradient at the picture, N×C×H×W; its norm per sample is about the sum of the shares.

        Args:
            losses: scalars computed from `picture`, each a mean over samples.
            picture: a leaf with requires_grad.
            shares: the result of `shares`.
            measurement: the result of `measurement`.
        """
        if measurement != "none":
            self._measure_gradients(losses, picture, decay=_DECAY if measurement == "followed" else 0.0)
        weights = shares / (self._sizes + _EPSILON)
        total = (torch.stack([losses[name] for name in self._shares]) * weights).sum()
        (gradient,) = torch.autograd.grad(total, picture)
        return gradient / picture.shape[0]

    def _measure_gradients(self, losses: Mapping[str, Tensor], picture: Tensor, decay: float) -> None:
        found = []
        for name in self._shares:
            (gradient,) = torch.autograd.grad(losses[name], picture, retain_graph=True)
            found.append(gradient.flatten(1).norm(dim=1).mean())
        sizes = torch.stack(found).detach()
        self._runtime.average_over_processes([sizes])
        self._sizes.lerp_(sizes, 1 - decay)

    def state(self) -> dict[str, Tensor]:
        """Return the state for `load`."""
        return {"sizes": self._sizes.clone()}

    def load(self, state: dict[str, Tensor]) -> None:
        self._sizes.copy_(state["sizes"])
