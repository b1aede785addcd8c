"""PatchGANs at several scales: their layout, their losses, and scores in half precision."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from training.losses.patch_gan import adversarial_loss
from training.losses.scaled_patch_gan import (
    PatchStages,
    ScaledPatchGAN,
    ScaleRatings,
    halve,
    scaled_adversarial_loss,
    scaled_matching_loss,
)


def ratings(score: float, *features: float) -> ScaleRatings:
    return ScaleRatings(torch.full((1, 1, 2, 2), score), [torch.full((1, 3, 2, 2), value) for value in features])


def test_a_discriminator_has_the_public_layers() -> None:
    net = PatchStages(39, 64, 3)
    shapes = [tuple(module.weight.shape) for module in net.modules() if isinstance(module, nn.Conv2d)]
    assert shapes == [(64, 39, 4, 4), (128, 64, 4, 4), (256, 128, 4, 4), (512, 256, 4, 4), (1, 512, 4, 4)]
    assert sum(isinstance(module, nn.InstanceNorm2d) for module in net.modules()) == 3
    found = net(torch.zeros(1, 39, 64, 64))
    assert [tuple(feature.shape[2:]) for feature in found.features] == [(33, 33), (17, 17), (9, 9), (10, 10)]
    assert found.scores.shape == (1, 1, 11, 11)


def test_each_scale_sees_half_of_the_previous_one() -> None:
    net = ScaledPatchGAN(5, 2, 2, 3)
    source, picture = torch.rand(2, 2, 32, 32), torch.rand(2, 3, 32, 32)
    found = net(source, picture)
    shown = halve(halve(torch.cat([source, picture], 1)))
    assert shown.shape == (2, 5, 8, 8)
    assert torch.equal(found[2].scores, net.scales[2](shown).scores)


def test_halving_leaves_a_flat_picture_as_it_is_at_the_border_too() -> None:
    assert torch.allclose(halve(torch.full((1, 1, 8, 8), 0.7)), torch.full((1, 1, 4, 4), 0.7))


def test_adversarial_losses_add_up_over_scales() -> None:
    found = [ratings(0.5), ratings(1.0)]
    assert scaled_adversarial_loss(found, real=True).item() == pytest.approx(0.25)
    assert scaled_adversarial_loss(found, real=False).item() == pytest.approx(1.25)


def test_feature_matching_weighs_stages_and_scales_as_upstream() -> None:
    found, wanted = [ratings(0, 1.0, 3.0, 0, 0), ratings(0, 0, 0, 0, 0)], [ratings(0, 0, 0, 0, 0)] * 2
    assert scaled_matching_loss(found, wanted).item() == pytest.approx((1.0 + 3.0) * 4 / 4 / 2)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_in_half_precision_a_score_close_to_its_aim_still_learns(half: torch.dtype) -> None:
    """The usual form computes scores in half precision, where 1.0003 is 1 and least squares have no gradient."""
    net = PatchStages(3, 2, 1)
    with torch.no_grad():
        net.score.weight.zero_()
        net.score.bias.fill_(1.0003)
    with torch.autocast("cpu", half):
        found = net(torch.rand(1, 3, 8, 8))
        naive = nn.functional.conv2d(found.features[-1], net.score.weight, net.score.bias, padding=2)

    def gradient(scores: Tensor) -> float:
        (given,) = torch.autograd.grad(adversarial_loss(scores, "lsgan", real=True), scores)
        return float(given.float().abs().sum())

    assert found.scores.dtype == torch.float32
    assert gradient(found.scores) == pytest.approx(2 * 0.0003, rel=0.01)
    assert gradient(naive) == 0
