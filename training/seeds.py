"""Random numbers as a function of (seed, step, purpose): a run that was cut draws the same ones when it goes on."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch


class Purpose(IntEnum):
    """What numbers are drawn for; each has a stream of its own, so that none moves another's."""

    WEIGHTS = 0
    ORDER = 1
    CROPS = 2
    MASKS = 3
    DROPOUT = 4
    PREVIEW = 5
    SHIFT = 6
    VIEWS = 7


def derived_seed(seed: int, step: int, purpose: Purpose) -> int:
    """A 63-bit seed that is another for every (seed, step, purpose), mixed by numpy's SeedSequence."""
    mixed = np.random.SeedSequence([seed, step, int(purpose)]).generate_state(1, np.uint64)
    return int(mixed[0]) >> 1


def generator_for(device: torch.device, seed: int, step: int, purpose: Purpose) -> torch.Generator:
    """A generator on `device`; the numbers of a CPU and of a GPU differ."""
    return torch.Generator(device).manual_seed(derived_seed(seed, step, purpose))
