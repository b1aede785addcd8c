"""The multi-scale patch discriminator and the losses from its logits."""

from __future__ import annotations

import math

import pytest
import torch

from training.losses.multi_scale_discriminator import (
    MultiScaleDiscriminator,
    SmallPatchDiscriminator,
    discriminator_loss,
    feature_matching_loss,
    generator_loss,
    gradient_penalty,
    patch_accuracy,
)

WIDTHS = (4, 5, 6, 7, 8, 9)


def judge() -> MultiScaleDiscriminator:
    return MultiScaleDiscriminator(WIDTHS, torch.Generator().manual_seed(0))


def test_logits_lie_at_three_scales_and_features_at_five() -> None:
    found = judge()(torch.rand(2, 4, 64, 96))
    assert [tuple(scale.shape) for scale in found.logits] == [(2, 1, 8, 12), (2, 1, 4, 6), (2, 1, 2, 3)]
    sizes = [(2, width, 64 >> level, 96 >> level) for level, width in enumerate(WIDTHS) if level]
    assert [tuple(features.shape) for features in found.features] == sizes


def test_small_patches_are_22_pixels_wide_and_their_colour_is_not_seen() -> None:
    shown = torch.rand(1, 4, 64, 96, requires_grad=True)
    net = SmallPatchDiscriminator((4, 5), torch.Generator().manual_seed(0))
    found = net(shown)
    with torch.no_grad():
        brighter = shown + torch.tensor([0.3, 0.2, 0.1, 0]).view(1, 4, 1, 1)
        assert torch.allclose(net(brighter).logits[0], found.logits[0], atol=1e-4)
    assert [tuple(scale.shape) for scale in found.logits] == [(1, 1, 32, 48)]
    found.logits[0][0, 0, 16, 24].backward()
    assert shown.grad is not None
    reached = shown.grad.abs().amax(1)[0].nonzero()
    assert (reached.amax(0) - reached.amin(0) + 1).tolist() == [22, 22]


def test_accuracy_is_counted_on_the_hole() -> None:
    hole, logits = torch.zeros(1, 1, 32, 32), torch.full((1, 1, 4, 4), -1.0)
    hole[..., :16] = 1
    logits[..., :2, :] = 1
    assert patch_accuracy([logits], [-logits], hole).item() == pytest.approx(0.5)
    assert patch_accuracy([logits.abs()], [logits], hole).item() == pytest.approx(0.75)


def test_activations_keep_their_size() -> None:
    wide = MultiScaleDiscriminator((32, 64, 64, 64, 64, 64), torch.Generator().manual_seed(0))
    with torch.no_grad():
        sizes = [features.square().mean().sqrt().item() for features in wide(torch.rand(2, 4, 64, 64)).features]
    assert all(0.1 < size < 3 for size in sizes)


def test_only_what_lies_on_the_hole_counts() -> None:
    hole = torch.zeros(1, 1, 32, 32)
    hole[..., :8, :8] = 1
    logits = torch.zeros(1, 1, 4, 4)
    logits[..., 1:, 1:] = 50
    assert generator_loss([logits], hole).item() == pytest.approx(math.log(2))
    assert discriminator_loss([-logits], [logits], hole).item() == pytest.approx(2 * math.log(2))


def test_without_a_hole_nothing_counts() -> None:
    assert generator_loss([torch.full((1, 1, 4, 4), -9.0)], torch.zeros(1, 1, 32, 32)).item() == 0


def test_a_discriminator_that_is_right_has_little_loss_and_leaves_the_generator_much() -> None:
    hole, sure = torch.ones(1, 1, 32, 32), torch.full((1, 1, 4, 4), 20.0)
    assert discriminator_loss([sure], [-sure], hole) < 1e-6
    assert generator_loss([-sure], hole).item() == pytest.approx(20)


def test_feature_matching_is_relative_and_leaves_the_finest_features_out() -> None:
    wanted = [torch.ones(1, 2, 4, 4), torch.full((1, 2, 2, 2), 100.0)]
    found = [torch.zeros(1, 2, 4, 4), torch.full((1, 2, 2, 2), 110.0)]
    assert feature_matching_loss(found, wanted).item() == pytest.approx(0.1, rel=1e-3)


def test_the_gradient_penalty_can_be_trained_down() -> None:
    torch.manual_seed(0)
    net, image, hole = judge(), torch.rand(2, 3, 32, 32), torch.ones(2, 1, 32, 32)
    optimiser = torch.optim.Adam(net.parameters(), 0.05)
    first = gradient_penalty(net, image, hole)
    for _ in range(5):
        optimiser.zero_grad()
        torch.autograd.backward(gradient_penalty(net, image, hole))
        optimiser.step()
    assert gradient_penalty(net, image, hole) < first / 2
