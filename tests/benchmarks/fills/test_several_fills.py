"""Fills of turned pictures are compared as they lie in the picture."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.fills.several_fills import (
    CaseMeasurement,
    fill_from_seeds,
    fill_in_orientations,
    sheet_row,
    summarise,
)
from engines.base import Array
from engines.manifest import FixedSize, TensorSpec
from export.generators.family import Interface, image_tensor
from service.imaging.orientations import ORIENTATIONS
from training.evaluate.cases import Case, Pixels
from training.evaluate.painters import NetPainter, Painter

TRUTH = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
HOLE = np.zeros((16, 16), np.uint8)
HOLE[2:5, 3:12] = 1
CASE = Case("a", TRUTH, TRUTH, HOLE, "10-50 %")


class TopLeftPainter(Painter):
    """Fills holes with white in the top left quarter and with black elsewhere; keeps what it was shown."""

    label = "model"

    def __init__(self) -> None:
        self.shown: list[Case] = []

    def paint(self, case: Case) -> Pixels:
        self.shown.append(case)
        fill = np.zeros_like(case.source)
        fill[:8, :8] = 255
        return np.where(np.asarray(case.hole)[..., None] > 0, fill, case.source).astype(np.uint8)

    def close(self) -> None:
        pass


def test_a_net_sees_picture_and_hole_in_eight_orientations_and_fills_come_back_upright() -> None:
    painter = TopLeftPainter()
    fills = fill_in_orientations(painter, CASE)
    assert len({case.source.tobytes() for case in painter.shown}) == len(fills) == len(ORIENTATIONS)
    for fill in fills:
        np.testing.assert_array_equal(fill[HOLE == 0], TRUTH[HOLE == 0])
    assert len({fill.tobytes() for fill in fills}) > 1


class LatentPainter(NetPainter):
    """Fills holes with the first random number as grey."""

    def __init__(self) -> None:
        image, mask = image_tensor("image", 3, side=(16, 16)), image_tensor("mask", 1, side=(16, 16))
        latent = TensorSpec(name="latent", dtype="float32", shape=("batch", "samples", 2))
        inputs = (image, mask, latent)
        super().__init__("net", Interface("inpaint", inputs, image, FixedSize(height=16, width=16)))

    def _run(self, feed: dict[str, Array]) -> Array:
        return np.full((1, 1, 3, 16, 16), 0.5 + 0.1 * feed["latent"][0, 0, 0], np.float32)

    def close(self) -> None:
        pass


def test_a_net_that_draws_random_numbers_fills_from_eight_seeds() -> None:
    net = LatentPainter()
    assert net.draws_numbers
    fills = fill_from_seeds(net, CASE)
    assert len({fill.tobytes() for fill in fills}) == 8
    assert [fill.tobytes() for fill in fill_from_seeds(net, CASE)] == [fill.tobytes() for fill in fills]


def test_figures_are_means_in_relation_to_the_first_fill() -> None:
    measured = [CaseMeasurement([0.2, 0.1], [20, 22], 0.05), CaseMeasurement([0.2, 0.3], [30, 26], 0.15)]
    report = summarise(measured)
    assert report["lpips_of_first"] == [1, 1]
    assert report["psnr_db"] == [25, 24]
    assert (report["lpips_between"], report["lpips_of_nearest"]) == pytest.approx((0.1, 0.75))


def test_a_row_of_the_sheet_has_the_hole_and_four_fills() -> None:
    row = sheet_row([TRUTH] * 8, CASE)
    assert row.shape == (16, 5 * 16, 3)
    assert (row[:, :16][HOLE > 0] == 128).all()
