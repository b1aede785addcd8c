"""Holes of every kind cover the wanted share, and are the same for the same seed."""

from __future__ import annotations

from random import Random

import cv2
import numpy as np
import pytest

from training.evaluate.holes import Band
from training.evaluate.shapes import KINDS, draw


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_a_hole_covers_a_part_within_the_band(kind, seed):
    hole = draw(kind, 60, 90, Band(0.2, 0.4), Random(seed))
    assert hole.shape == (60, 90)
    assert 0.199 <= hole.mean() <= 0.401


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_draws_the_same_hole_and_another_one_does_not(kind):
    one, again, other = (draw(kind, 60, 90, Band(0.2, 0.4), Random(seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_boxes_and_blobs_are_thicker_than_strokes():
    def radius(kind):
        found = []
        for seed in range(12):
            hole = draw(kind, 128, 128, Band(0.3, 0.31), Random(seed))
            padded = np.pad(hole.astype(np.uint8), 1)
            found.append(cv2.distanceTransform(padded, cv2.DIST_L2, 3).max())
        return np.mean(found)

    strokes = radius("strokes")
    assert radius("boxes") > 1.3 * strokes
    assert radius("blobs") > 1.3 * strokes


def test_boxes_have_straight_edges():
    hole = draw("boxes", 100, 100, Band(0.1, 0.11), Random(1))
    _, _, stats, _ = cv2.connectedComponentsWithStats(hole.astype(np.uint8))
    largest = max(stats[1:], key=lambda row: row[4])
    assert largest[4] > 0.95 * largest[2] * largest[3]
