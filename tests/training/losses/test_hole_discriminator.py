"""The discriminator that detects filled holes."""

from __future__ import annotations

import torch

from training.losses.hole_discriminator import HoleDiscriminator


def test_a_judge_learns_to_find_what_was_filled_with_noise() -> None:
    torch.manual_seed(0)
    judge = HoleDiscriminator(8, 2)
    optimiser = torch.optim.Adam(judge.parameters(), lr=2e-3)
    image = torch.linspace(0, 1, 32).expand(4, 3, 32, 32).clone()
    hole = torch.zeros(4, 1, 32, 32)
    hole[..., :16] = 1
    composite = torch.where(hole > 0, torch.rand(4, 3, 32, 32), image)
    first, last = judge(composite, image, hole)["discriminator"].item(), 0.0
    for _ in range(40):
        optimiser.zero_grad()
        loss = judge(composite, image, hole)["discriminator"]
        loss.backward()
        optimiser.step()
        last = loss.item()
    assert last < first / 4
    scores = judge.scores(composite, hole)
    assert scores[..., :3].mean() < 0.5 < scores[..., -3:].mean()
    assert judge.generator_loss(composite, hole) > judge.generator_loss(image, hole)


def test_only_patches_in_the_hole_count_for_the_net() -> None:
    torch.manual_seed(0)
    judge, picture = HoleDiscriminator(4, 2).eval(), torch.rand(1, 3, 32, 32)
    assert judge.generator_loss(picture, torch.zeros(1, 1, 32, 32)) == 0
    assert judge.generator_loss(picture, torch.ones(1, 1, 32, 32)) > 0
