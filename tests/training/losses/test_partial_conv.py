"""The losses in half precision; where the naive formula fails, a test shows that it does."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from training.losses.lpips_distance import Lpips
from training.losses.partial_conv import (
    gram,
    grid_unevenness,
    learned_distance,
    log_mse,
    masked_mean,
    normalised_feature_distance,
    perceptual_distance,
    style_distance,
    total_variation,
)


def pictures(*shape: int, seed: int = 1) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed))


def test_a_masked_mean_is_right_where_sums_overflow_in_fp16() -> None:
    values, mask = pictures(2, 3, 256, 256).half(), torch.ones(2, 1, 256, 256).half()
    naive = (values * mask).sum() / (mask.expand_as(values).sum() + 1e-8)
    assert not torch.isfinite(naive)
    assert masked_mean(values, mask) == pytest.approx(values.float().mean().item(), rel=1e-5)


def test_a_masked_mean_of_an_empty_mask_is_zero_where_a_small_epsilon_vanishes_in_fp16() -> None:
    values, mask = pictures(1, 3, 8, 8).half(), torch.zeros(1, 1, 8, 8).half()
    naive = (values * mask).sum() / (mask.sum() + torch.tensor(1e-8).half())
    assert naive.isnan()
    assert masked_mean(values, mask) == 0


def test_a_masked_mean_is_the_mean_over_samples_of_each_samples_own() -> None:
    values, mask = pictures(2, 3, 8, 8), torch.zeros(2, 1, 8, 8)
    mask[0, :, :2], mask[1, :, :, :1] = 1, 1
    wanted = (values[0, :, :2].mean() + values[1, :, :, :1].mean()) / 2
    assert masked_mean(values, mask) == pytest.approx(wanted.item())


def test_the_gradient_of_a_masked_mean_is_finite_in_fp16_on_an_empty_mask() -> None:
    values = pictures(1, 3, 8, 8).half().requires_grad_()
    masked_mean(values, torch.zeros(1, 1, 8, 8).half()).backward()
    assert values.grad is not None
    assert torch.isfinite(values.grad).all()


def test_a_gram_matrix_is_right_where_one_scale_vanishes_in_fp16() -> None:
    features = (0.02 * pictures(1, 4, 512, 512)).half()
    flat, scale = features.reshape(1, 4, -1), torch.tensor(1 / features[0].numel()).half()
    assert scale > 0
    assert (flat * scale == 0).all()
    exact = torch.bmm(flat.double(), flat.double().transpose(1, 2)) / features[0].numel()
    assert torch.allclose(gram(features).double(), exact, rtol=5e-3)


def test_a_gram_matrix_is_right_where_undivided_sums_overflow_in_fp16() -> None:
    features = (20 * pictures(1, 4, 64, 64)).half()
    flat = features.reshape(1, 4, -1)
    assert torch.isinf(torch.bmm(flat, flat.transpose(1, 2))).all()
    exact = torch.bmm(flat.double(), flat.double().transpose(1, 2)) / features[0].numel()
    assert torch.allclose(gram(features).double(), exact, rtol=5e-3)


def test_log_mse_falls_by_one_where_psnr_rises_by_ten_over_ln_ten() -> None:
    image, mask = pictures(2, 3, 16, 16), torch.ones(2, 1, 16, 16)
    far, near = log_mse(image + 0.2, image, mask), log_mse(image + 0.1, image, mask)
    gained_db = 10 / math.log(10) * (far - near).item()
    assert gained_db == pytest.approx(20 * math.log10(2), rel=1e-3)


def test_log_mse_of_a_perfect_picture_is_finite() -> None:
    image = pictures(1, 3, 8, 8).half()
    assert torch.isfinite(log_mse(image, image, torch.ones(1, 1, 8, 8)))
    assert torch.isfinite(log_mse(image, image, torch.zeros(1, 1, 8, 8)))


def test_alike_features_are_at_no_distance_and_others_at_some() -> None:
    found, wanted = [pictures(1, 4, 8, 8), pictures(1, 8, 4, 4)], [pictures(1, 4, 8, 8, seed=2), pictures(1, 8, 4, 4)]
    assert perceptual_distance(wanted, wanted) == 0
    assert perceptual_distance(found, wanted) == pytest.approx((found[0] - wanted[0]).abs().mean().item())
    assert style_distance(wanted, wanted) == 0
    assert style_distance(found, wanted) > 0


def test_directed_distance_sees_the_direction_of_features_and_not_their_length() -> None:
    wanted = [pictures(1, 4, 8, 8) + 1, pictures(1, 8, 4, 4) + 1]
    assert normalised_feature_distance([3 * layer for layer in wanted], wanted) == pytest.approx(0, abs=1e-4)
    apart = torch.zeros(1, 2, 4, 4), torch.zeros(1, 2, 4, 4)
    apart[0][:, 0], apart[1][:, 1] = 50, 80
    assert normalised_feature_distance([apart[0]], [apart[1]]) == pytest.approx(2, rel=1e-4)


def test_directed_distance_is_right_where_squares_overflow_in_fp16() -> None:
    found, wanted = (300 * pictures(1, 64, 8, 8, seed=seed) for seed in (1, 2))
    assert torch.isinf(found.half().square()).any()
    exact = normalised_feature_distance([found], [wanted])
    assert normalised_feature_distance([found.half()], [wanted.half()]) == pytest.approx(exact.item(), rel=1e-2)


def test_the_gradient_of_directed_distance_is_finite_where_all_features_are_zero() -> None:
    found = torch.zeros(1, 4, 8, 8).requires_grad_()
    normalised_feature_distance([found], [pictures(1, 4, 8, 8)]).backward()
    assert found.grad is not None
    assert torch.isfinite(found.grad).all()


@pytest.fixture
def lpips() -> Lpips:
    """Make LPIPS with random features of AlexNet's shape and equal channel weights."""
    torch.manual_seed(1)
    made = Lpips()
    for head in made.heads:
        torch.nn.init.ones_(head)
    return made


def test_learned_distance_is_the_mean_of_what_evaluation_measures_in_full_precision(lpips: Lpips) -> None:
    one, other = pictures(2, 3, 64, 64), pictures(2, 3, 64, 64, seed=2)
    exact = lpips(one * 2 - 1, other * 2 - 1)
    with torch.autocast("cpu", torch.bfloat16):
        assert not torch.equal(lpips(one * 2 - 1, other * 2 - 1), exact)
        assert torch.equal(learned_distance(lpips, one, other), exact.mean())
    assert learned_distance(lpips, one, one) == 0


def test_learned_distance_leads_to_the_picture_and_trains_nothing_else(lpips: Lpips) -> None:
    truth = pictures(1, 3, 64, 64)
    picture = pictures(1, 3, 64, 64, seed=2).requires_grad_()
    distance = learned_distance(lpips, picture, truth)
    distance.backward()
    assert picture.grad is not None
    step = 0.01 * picture.grad / picture.grad.norm()
    assert learned_distance(lpips, picture.detach() - step, truth) < distance
    assert all(parameter.grad is None for parameter in lpips.parameters())


def test_the_gradient_of_learned_distance_is_finite_where_no_feature_answers(lpips: Lpips) -> None:
    torch.nn.init.constant_(lpips.features["0"].bias, -100)
    picture = pictures(1, 3, 64, 64).requires_grad_()
    learned_distance(lpips, picture, pictures(1, 3, 64, 64, seed=2)).backward()
    assert picture.grad is not None
    assert torch.isfinite(picture.grad).all()


def test_style_does_not_see_where_things_are() -> None:
    features = [pictures(1, 4, 8, 8)]
    moved = [features[0].roll(3, dims=3)]
    assert style_distance(moved, features) == pytest.approx(0, abs=1e-6)
    assert perceptual_distance(moved, features) > 0.1


def test_total_variation_counts_neighbours_in_and_beside_the_hole_alone() -> None:
    image, hole = torch.zeros(1, 1, 4, 4), torch.zeros(1, 1, 4, 4)
    image[..., 3] = 1
    assert total_variation(image, hole) == 0
    hole[..., 2] = 1
    assert total_variation(image, hole) == pytest.approx(0.5)


def test_weave_sees_a_grid_of_the_decoder_and_no_other_texture() -> None:
    hole, texture = torch.ones(2, 1, 64, 64), pictures(2, 3, 64, 64)
    assert grid_unevenness(texture, hole) < 0.01
    blocks = texture[..., ::2, ::2].repeat_interleave(2, 2).repeat_interleave(2, 3)
    assert grid_unevenness(blocks, hole) == pytest.approx(2, rel=0.05)
    softened = (blocks + blocks.roll(1, 2)) / 2
    assert 1 < grid_unevenness((softened + softened.roll(1, 3)) / 2, hole) + 1 < grid_unevenness(blocks, hole)


def test_weave_is_blind_outside_the_hole_and_finite_on_any() -> None:
    blocks = pictures(1, 3, 16, 16).repeat_interleave(2, 2).repeat_interleave(2, 3).requires_grad_()
    outside = torch.zeros(1, 1, 32, 32)
    assert grid_unevenness(blocks, outside) == 0
    outside[..., 3:5, 3:5] = 1
    grid_unevenness(blocks, outside).backward()
    assert blocks.grad is not None
    assert torch.isfinite(blocks.grad).all()
    assert (blocks.grad * (1 - outside)).abs().sum() == 0
