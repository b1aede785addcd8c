"""Losses balanced by the magnitudes of their gradients at the picture, so that their weights are shares.

The gradient of each loss at the generator's output is divided by its norm and multiplied by its share (Défossez et al.,
"High Fidelity Neural Audio Compression", 2022, section 3.4), so that a drift of a loss's scale does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from training.loop.runtime import Runtime

_MEASURED_EVERY, _YOUNG = 25, 5
_KEPT = 0.7
_LEAST = 1e-8


class LossBalancer:
    """Keeps the norm of each loss's gradient; `shares` maps the losses' names to their shares."""

    def __init__(self, shares: Mapping[str, float], runtime: Runtime) -> None:
        self._shares, self._runtime = {name: share for name, share in shares.items() if share > 0}, runtime
        self._sizes = torch.zeros(len(self._shares), device=runtime.device)

    def gradient(
        self, losses: Mapping[str, Tensor], picture: Tensor, number: int, ramps: Mapping[str, float]
    ) -> Tensor:
        """Return the balanced gradient at the picture, N×C×H×W; its norm per sample is about the sum of the shares.

        Args:
            losses: scalars computed from `picture`, each a mean over samples.
            picture: a leaf with requires_grad.
            number: the step; norms are measured in the first five steps and in every 25th.
            ramps: factors of the shares of losses that are held back; the others have their whole share.
        """
        if number % _MEASURED_EVERY == 0 or number < _YOUNG:
            self._measure_gradients(losses, picture, young=number < _YOUNG)
        shares = [share * ramps.get(name, 1.0) for name, share in self._shares.items()]
        weights = torch.tensor(shares).to(self._sizes, non_blocking=True) / (self._sizes + _LEAST)
        total = (torch.stack([losses[name] for name in self._shares]) * weights).sum()
        (gradient,) = torch.autograd.grad(total, picture)
        return gradient / picture.shape[0]

    def _measure_gradients(self, losses: Mapping[str, Tensor], picture: Tensor, *, young: bool) -> None:
        found = []
        for name in self._shares:
            (gradient,) = torch.autograd.grad(losses[name], picture, retain_graph=True)
            found.append(gradient.flatten(1).norm(dim=1).mean())
        sizes = torch.stack(found).detach()
        self._runtime.average_over_processes([sizes])
        self._sizes = sizes if young else self._sizes.lerp(sizes, 1 - _KEPT)

    def state(self) -> dict[str, Tensor]:
        """Return the state for `load`."""
        return {"sizes": self._sizes}

    def load(self, state: dict[str, Tensor]) -> None:
        self._sizes = state["sizes"].to(self._sizes)
