"""The unevenness of a fill's contrast over a grid of four pixels."""

from __future__ import annotations

import pytest
import torch

from training.losses.grid import grid_unevenness, sum_contrasts

SIDE = 64
WHOLE = torch.ones(1, 1, SIDE, SIDE)


def noise() -> torch.Tensor:
    return torch.rand(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))


def unevenness(picture: torch.Tensor, hole: torch.Tensor) -> tuple[float, float]:
    return grid_unevenness(sum_contrasts(picture, hole))


def test_noise_has_hardly_a_grid() -> None:
    assert max(unevenness(noise(), WHOLE)) < 0.1


@pytest.mark.parametrize("axis", [2, 3])
def test_a_period_of_four_pixels_shows_in_its_direction_alone(axis: int) -> None:
    found = unevenness(noise().index_select(axis, torch.arange(SIDE) // 4 * 4), WHOLE)
    assert found[axis - 2] == pytest.approx(4)
    assert found[3 - axis] < 0.1


def test_only_what_lies_deep_in_the_hole_counts() -> None:
    hole = torch.zeros(1, 1, SIDE, SIDE)
    hole[..., 20:, 20:] = 1
    picture = noise()
    inside = sum_contrasts(picture, hole)
    picture[..., :28, :], picture[..., :, :28] = 0, 0
    assert torch.allclose(sum_contrasts(picture, hole), inside)
    assert inside[0, 1].sum() == (SIDE - 29) * (SIDE - 28), "up to the border, which is no edge of the hole"


def test_sums_of_several_batches_are_those_of_all_their_pictures() -> None:
    both = torch.cat([noise(), noise().flip(3)])
    one, other = (sum_contrasts(picture[None], WHOLE) for picture in both)
    assert torch.allclose(one + other, sum_contrasts(both, torch.cat([WHOLE, WHOLE])))


def test_without_a_deep_hole_there_is_no_grid() -> None:
    assert unevenness(noise(), torch.zeros(1, 1, SIDE, SIDE)) == (0, 0)
