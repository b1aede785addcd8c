"""Holes for FillNet."""

from __future__ import annotations

import pytest
import torch

from training.data.holes import draw_box_numbers, draw_numbers, make_holes, make_thick_boxes

SIDE = 64


def holes(count: int, coverage: tuple[float, float] = (0.08, 0.75), seed: int = 0) -> torch.Tensor:
    return make_holes(*draw_numbers(count, torch.Generator().manual_seed(seed)), SIDE, coverage)


def test_holes_are_zeros_and_ones_of_the_wanted_size() -> None:
    found = holes(3)
    assert found.shape == (3, 1, SIDE, SIDE)
    assert set(found.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("coverage", [(0.08, 0.1), (0.3, 0.5), (0.7, 0.75)], ids=str)
def test_they_cover_what_is_asked_for(coverage: tuple[float, float]) -> None:
    parts = holes(64, coverage).mean((1, 2, 3))
    assert parts.min() > coverage[0] - 0.05
    assert parts.max() < coverage[1] + 0.05


def test_a_part_of_the_numbers_gives_the_same_holes() -> None:
    uniform, normal = draw_numbers(6, torch.Generator().manual_seed(1))
    whole = make_holes(uniform, normal, SIDE, (0.1, 0.5))
    assert torch.equal(whole[2:4], make_holes(uniform[2:4], normal[2:4], SIDE, (0.1, 0.5)))


def test_no_two_are_alike_and_some_are_boxes() -> None:
    found = holes(60).flatten(1)
    assert len(found.unique(dim=0)) == 60
    rows = found.view(60, SIDE, SIDE).mean(2)
    touched = [row[row > 0] for row in rows]
    assert any(len(row) > 8 and len(row[1:-1].unique()) == 1 for row in touched), "one box has rows of one length"


def test_thick_boxes_cover_what_they_should_and_mostly_touch_the_border() -> None:
    boxes = make_thick_boxes(draw_box_numbers(90, torch.Generator().manual_seed(0)), SIDE)[:, 0]
    parts = boxes.mean((1, 2))
    assert parts.min() > 0.36
    assert parts.max() < 0.84
    assert torch.equal(boxes, boxes.amax(2, keepdim=True) * boxes.amax(1, keepdim=True)), "each is one rectangle"
    at_border = boxes[:, 0].amax(1) + boxes[:, -1].amax(1) + boxes[:, :, 0].amax(1) + boxes[:, :, -1].amax(1)
    assert (at_border > 0).float().mean() > 0.75
