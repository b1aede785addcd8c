"""Random numbers as a function of (seed, step, purpose)."""

from __future__ import annotations

import torch

from training.seeds import Purpose, derived_seed, generator_for


def test_every_seed_step_and_purpose_has_its_own_stream() -> None:
    seeds = {derived_seed(s, n, p) for s in range(5) for n in range(50) for p in Purpose}
    assert len(seeds) == 5 * 50 * len(Purpose)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_the_same_step_draws_the_same_numbers_whatever_was_drawn_before() -> None:
    device = torch.device("cpu")
    first = torch.rand(4, generator=generator_for(device, 1, 7, Purpose.MASKS))
    torch.rand(100)
    again = torch.rand(4, generator=generator_for(device, 1, 7, Purpose.MASKS))
    assert torch.equal(first, again)
