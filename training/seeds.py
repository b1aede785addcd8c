"""Random numbers as a function of (seed, step, purpose), so that a continued run draws the same numbers."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch


class Purpose(IntEnum):
    """The use of random numbers; each has its own stream, so that one use does not shift another's numbers."""

    WEIGHTS = 0
    ORDER = 1
    CROPS = 2
    MASKS = 3
    DROPOUT = 4
    PREVIEW = 5
    SHIFT = 6
    VIEWS = 7
    LATENTS = 8
    AUGMENTATION = 9


def derived_seed(seed: int, step: int, purpose: Purpose) -> int:
    """Derive a 63-bit seed from (seed, step, purpose) with numpy's SeedSequence."""
    mixed = np.random.SeedSequence([seed, step, int(purpose)]).generate_state(1, np.uint64)
    return int(mixed[0]) >> 1


def generator_for(device: torch.device, seed: int, step: int, purpose: Purpose) -> torch.Generator:
    """Make a generator on `device`; CPUs and GPUs give different numbers."""
    return torch.Generator(device).manual_seed(derived_seed(seed, step, purpose))
