"""Random holes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from training.data.hole_masks import HoleShapes, draw_shapes, fill_shapes


def drawn(count: int, coverage: tuple[float, float] = (0.05, 0.55), seed: int = 1) -> HoleShapes:
    return draw_shapes(count, coverage, torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def masks() -> Tensor:
    return fill_shapes(drawn(64), 128)


def test_holes_are_zeros_and_ones(masks: Tensor) -> None:
    assert masks.shape == (64, 1, 128, 128)
    assert ((masks == 0) | (masks == 1)).all()


def test_holes_cover_what_was_asked_for(masks: Tensor) -> None:
    covered, asked = masks.mean((1, 2, 3)), drawn(64).coverage
    assert (covered - asked).abs().max() < 0.02
    assert covered.min() < 0.12
    assert covered.max() > 0.45


def test_holes_are_irregular(masks: Tensor) -> None:
    """Holes are diverse: the number of edge pixels per covered pixel varies widely."""
    edges = (masks[..., 1:] != masks[..., :-1]).float().sum((1, 2, 3))
    thinness = edges / masks.sum((1, 2, 3))
    assert thinness.max() > 5 * thinness.min()
    assert len({tuple(mask.flatten().tolist()) for mask in masks}) == 64


def test_a_part_of_a_batch_is_drawn_alone_as_it_is_drawn_in_the_whole(masks: Tensor) -> None:
    assert torch.equal(fill_shapes(drawn(64).samples_between(10, 14), 128), masks[10:14])


def test_the_same_seed_draws_the_same_holes() -> None:
    first, again, other = (fill_shapes(drawn(2, seed=seed), 32) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
