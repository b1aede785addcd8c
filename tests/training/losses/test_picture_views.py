"""The views of a picture that nets with strides are given in its place."""

from __future__ import annotations

import pytest
import torch

from training.losses.picture_views import half_size_and_cut, roll_picture, view_indices

CPU = torch.device("cpu")


def test_a_view_is_the_half_of_the_size_and_a_cut() -> None:
    picture = torch.rand(2, 3, 8, 8)
    views = half_size_and_cut(picture, view_indices(8, (0, 0), (3, 1), CPU))
    assert torch.equal(views[:2], torch.nn.functional.avg_pool2d(picture, 2))
    assert torch.equal(views[2:], picture[..., 3:7, 1:5])


@pytest.mark.parametrize("shift", [(0, 0), (3, 0), (0, 5), (2, 7)])
def test_rolling_moves_around_the_torus(shift: tuple[int, int]) -> None:
    picture = torch.rand(1, 2, 8, 8)
    assert torch.equal(roll_picture(picture, view_indices(8, shift, (0, 0), CPU)), torch.roll(picture, shift, (2, 3)))
