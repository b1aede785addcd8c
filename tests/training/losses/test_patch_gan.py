"""PatchGAN and its losses."""

from __future__ import annotations

import pytest
import torch

from training.losses.patch_gan import PatchDiscriminator, adversarial_loss, smallest_side


def test_with_three_layers_an_output_sees_seventy_pixels() -> None:
    net = PatchDiscriminator(4, 3).eval()
    pair = torch.rand(1, 6, 128, 128, requires_grad=True)
    scores = net(pair)
    assert scores.shape == (1, 1, 14, 14)
    scores[0, 0, 7, 7].backward()
    assert pair.grad is not None
    seen = (pair.grad.abs().sum((0, 1)) > 0).nonzero()
    assert (seen.amax(0) - seen.amin(0) + 1).tolist() == [70, 70]


@pytest.mark.parametrize("layers", range(1, 7))
def test_the_smallest_side_leaves_one_patch_to_judge_and_a_smaller_one_none(layers: int) -> None:
    net, side = PatchDiscriminator(1, layers), smallest_side(layers)
    assert net(torch.rand(1, 6, side, side)).shape == (1, 1, 1, 1)
    with pytest.raises(RuntimeError, match="Kernel size"):
        net(torch.rand(2, 6, side - 1, side - 1))


@pytest.mark.parametrize("kind", ["vanilla", "lsgan"])
def test_the_loss_is_low_where_the_scores_are_right(kind: str) -> None:
    right = adversarial_loss(torch.ones(2, 1, 3, 3), kind, real=True)  # type: ignore[arg-type]
    wrong = adversarial_loss(torch.ones(2, 1, 3, 3), kind, real=False)  # type: ignore[arg-type]
    assert right < wrong


def test_cross_entropy_is_finite_where_the_naive_form_is_not_in_fp16() -> None:
    scores = torch.full((1, 1, 2, 2), -20.0).half()
    assert torch.isinf(-scores.sigmoid().log()).all()
    assert adversarial_loss(scores, "vanilla", real=True) == pytest.approx(20, rel=1e-3)
