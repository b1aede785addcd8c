from random import Random

import numpy as np
import pytest

from training.evaluate.holes import Band, bands, draw_hole


@pytest.mark.parametrize(("height", "width"), [(256, 256), (171, 97)])
@pytest.mark.parametrize("band", [Band(0.1, 0.2), Band(0.45, 0.5), Band(0.95, 1.0)])
def test_hole_covers_a_part_inside_its_band(height, width, band):
    for seed in range(5):
        hole = draw_hole(height, width, band, Random(seed))
        assert hole.shape == (height, width)
        assert band.low - 1 / hole.size <= hole.mean() <= band.high + 1 / hole.size


def test_same_seed_draws_the_same_hole_today_and_in_a_year():
    hole = draw_hole(64, 64, Band(0.2, 0.3), Random("0 7"))
    quarters = hole.reshape(8, 8, 8, 8).mean((1, 3)) > 0.5
    assert "".join(f"{row:02x}" for row in np.packbits(quarters)) == "7e2f1b0004000010"
    assert (hole != draw_hole(64, 64, Band(0.2, 0.3), Random("0 8"))).any()


def test_hole_is_of_thick_strokes_and_no_dust():
    hole = draw_hole(256, 256, Band(0.3, 0.4), Random(1)).astype(np.int8)
    edges = np.abs(np.diff(hole, axis=0)).sum() + np.abs(np.diff(hole, axis=1)).sum()
    assert edges < 0.15 * hole.sum()


def test_range_is_cut_into_bands_of_a_tenth():
    assert [str(band) for band in bands(Band(0.1, 0.5))] == ["10-20 %", "20-30 %", "30-40 %", "40-50 %"]
    assert [str(band) for band in bands(Band(0.05, 0.2))] == ["5-15 %", "15-20 %"]
    assert bands(Band(0.3, 0.35)) == [(0.3, 0.35)]
