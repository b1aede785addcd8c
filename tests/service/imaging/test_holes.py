from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.imaging.holes import GAP, THIN_RADIUS, find_depths, find_holes, group_boxes, groups_of, largest_radius


def mask_of(size: tuple[int, int], *boxes: tuple[int, int, int, int]) -> NDArray[np.bool_]:
    mask = np.zeros(size, np.bool_)
    for top, left, bottom, right in boxes:
        mask[top:bottom, left:right] = True
    return mask


def test_holes_far_apart_are_separate_and_tightly_boxed() -> None:
    boxes = [(2, 3, 10, 20), (40, 0, 41, 1), (90, 60, 100, 100)]
    holes = find_holes(mask_of((100, 100), *boxes), 500)
    assert sorted(map(tuple, holes.boxes.tolist())) == sorted(boxes)


@pytest.mark.parametrize("size", [(30, 40), (31, 41)])
def test_holes_in_the_corners_are_tightly_boxed(size: tuple[int, int]) -> None:
    height, width = size
    boxes = [(0, 0, 3, 4), (0, width - 5, 2, width), (height - 1, 0, height, 2), (height - 6, width - 9, height, width)]
    assert sorted(map(tuple, find_holes(mask_of(size, *boxes), 500).boxes.tolist())) == sorted(boxes)


@pytest.mark.parametrize(("apart", "count"), [(GAP, 1), (GAP + 1, 2)])
def test_parts_a_few_pixels_apart_are_one_hole(apart: int, count: int) -> None:
    mask = mask_of((50, 50), (10, 10, 20, 20), (10, 20 + apart, 20, 40))
    assert len(find_holes(mask, 500).boxes) == count


def test_every_masked_pixel_has_the_label_of_one_hole_and_no_other_has() -> None:
    mask = np.random.default_rng(0).random((200, 300)) < 0.01
    holes = find_holes(mask, 60)
    top, left = holes.origin
    padded = np.pad(mask, 10)
    window = padded[top + 10 : top + 10 + holes.labels.shape[0], left + 10 : left + 10 + holes.labels.shape[1]]
    np.testing.assert_array_equal(holes.labels > 0, window)
    assert mask.sum() == (holes.labels > 0).sum()
    assert set(np.unique(holes.labels)) == set(range(len(holes.boxes) + 1))
    for number, (first, start, last, end) in enumerate(holes.boxes.tolist(), 1):
        rows, columns = np.nonzero(holes.labels == number)
        assert (rows.min() + top, columns.min() + left) == (first, start)
        assert (rows.max() + 1 + top, columns.max() + 1 + left) == (last, end)


def test_a_thin_hole_longer_than_a_window_is_cut_and_a_thick_one_is_not() -> None:
    line = np.zeros((1000, 1000), np.uint8)
    cv2.line(line, (10, 10), (990, 950), 1, 5)
    cut = find_holes(line.astype(np.bool_), 400)
    assert len(cut.boxes) > 4
    assert (cut.boxes[:, 2:] - cut.boxes[:, :2]).max() <= 200
    assert not cut.radii.any()
    thick = find_holes(mask_of((1000, 1000), (100, 100, 140, 900)), 400)
    assert len(thick.boxes) == 1
    assert thick.radii[0] == pytest.approx(20, abs=1)


def test_the_radius_is_that_of_the_largest_circle_inside() -> None:
    disc = cv2.circle(np.zeros((200, 300), np.uint8), (100, 90), 60, 1, -1).astype(np.bool_)
    holes = find_holes(disc | mask_of((200, 300), (10, 250, 20, 290)), 500)
    assert sorted(holes.radii.tolist()) == [0, pytest.approx(60, rel=0.05)]


def test_a_mask_that_touches_every_edge_still_has_edges() -> None:
    assert find_holes(np.ones((41, 400), np.bool_), 500).radii == pytest.approx([21], abs=1)


@given(st.integers(1, 45), st.integers(1, 45), st.floats(0, 90))
def test_no_thick_hole_counts_as_thin(height: int, width: int, degrees: float) -> None:
    mask = cv2.ellipse(np.zeros((120, 120), np.uint8), (60, 60), (width, height), degrees, 0, 360, 1, -1)
    radius = float(cv2.distanceTransform(mask, cv2.DIST_L2, 3).max())
    found = float(find_holes(mask.astype(np.bool_), 500).radii.max())
    assert found == pytest.approx(radius if radius > THIN_RADIUS else 0)


boxes_strategy = st.lists(
    st.tuples(st.integers(0, 900), st.integers(0, 900), st.integers(1, 150), st.integers(1, 150)),
    min_size=1,
    max_size=60,
).map(lambda rows: np.array([(top, left, top + h, left + w) for top, left, h, w in rows], np.intp))


@given(boxes_strategy, st.integers(1, 200), st.integers(1, 200))
def test_groups_fit_the_window_unless_a_single_box_does_not(boxes: NDArray[np.intp], height: int, width: int) -> None:
    alone = np.zeros(len(boxes), np.bool_)
    groups = group_boxes(boxes, height, width, alone)
    assert set(groups.tolist()) == set(range(int(groups.max()) + 1))
    for number, (own, box, extent) in enumerate(groups_of(boxes, groups)):
        members = boxes[groups == number]
        assert own == tuple(np.flatnonzero(groups == number))
        assert extent == tuple((members[:, 2:] - members[:, :2]).max(axis=0))
        assert (box.top, box.left) == tuple(members[:, :2].min(axis=0))
        assert (box.bottom, box.right) == tuple(members[:, 2:].max(axis=0))
        assert len(members) == 1 or (box.size.height <= height and box.size.width <= width)


def test_boxes_marked_alone_are_not_grouped() -> None:
    boxes = np.array([(0, 0, 5, 5), (6, 6, 9, 9), (6, 0, 9, 3)], np.intp)
    alone = np.array([False, True, False])
    groups = group_boxes(boxes, 50, 50, alone)
    assert groups[0] == groups[2] != groups[1]


@pytest.mark.parametrize("side", [8, 23, 30, 31, 32, 40, 90])
def test_the_thickest_hole_is_the_one_with_the_largest_radius(side: int) -> None:
    mask = mask_of((200, 300), (0, 0, side, 60), (100, 200, 109, 299))
    depths = find_depths(mask)
    assert largest_radius(depths) == find_holes(mask, 500).radii.max()
    assert (find_holes(mask, 500, depths).radii == find_holes(mask, 500).radii).all()
