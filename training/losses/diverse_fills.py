"""The losses of PD-GAN that other tasks do not have: hinge and diversity, both FP32."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from training.losses.scaled_patch_gan import ScaleRatings

_MIN_DIFFERENCE = 1e-5


def diversity_loss(first: Sequence[Tensor], second: Sequence[Tensor]) -> Tensor:
    """Return the reciprocal of the mean |difference| of two fills' features, summed over layers; FP32, at most 1e5.

    In FP16 (at most 65504) it would be infinite for equal fills, as they are at the start of training.
    """
    gaps = [(one.float() - other.float()).abs().mean() for one, other in zip(first, second, strict=True)]
    return 1 / (torch.stack(gaps).sum() + _MIN_DIFFERENCE)


def hinge_loss(ratings: Sequence[ScaleRatings], *, real: bool) -> Tensor:
    """Return the discriminators' hinge loss: by how much scores fall short of 1 (real) or -1 (fake); FP32.

    Near 1 bf16 has steps of 1/256 below and 1/128 above: a score slightly short of it would have no gradient.
    """
    sign = -1.0 if real else 1.0
    return torch.stack([(1 + sign * scale.scores.float()).relu().mean() for scale in ratings]).sum()


def generator_hinge_loss(ratings: Sequence[ScaleRatings]) -> Tensor:
    """Return the generator's loss: the negated mean score, summed over scales; FP32."""
    return torch.stack([-scale.scores.float().mean() for scale in ratings]).sum()
