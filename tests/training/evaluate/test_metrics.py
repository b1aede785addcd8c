import math

import numpy as np
import pytest

from training.evaluate.metrics import l1, psnr_db, ssim


def _noise(height=24, width=20, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


def test_psnr_of_one_wrong_value():
    truth = np.zeros((10, 10, 3), np.uint8)
    found = truth.copy()
    found[3, 4, 1] = 51  # a fifth of the range: mean squared error 0.04 / 300
    assert psnr_db(found, truth) == pytest.approx(-10 * math.log10(0.04 / 300))
    assert psnr_db(truth, truth) == 100


def test_l1_counts_the_hole_alone():
    truth = np.zeros((4, 4, 3), np.uint8)
    found = np.full((4, 4, 3), 255, np.uint8)
    found[0] = 51
    hole = np.zeros((4, 4), np.bool_)
    hole[0] = True
    assert l1(found, truth, hole) == pytest.approx(0.2)
    assert l1(found, truth, None) == pytest.approx((0.2 + 3) / 4)


def test_ssim_is_the_mean_over_windows_that_lie_inside():
    x, y = _noise(), _noise(seed=1)
    offsets = np.arange(-5, 6)
    line = np.exp(-(offsets**2) / (2 * 1.5**2))
    window = np.outer(line, line) / np.outer(line, line).sum()
    values = []
    for channel in range(3):
        for row in range(5, 24 - 5):
            for column in range(5, 20 - 5):
                area = np.s_[row - 5 : row + 6, column - 5 : column + 6, channel]
                a, b = x[area] / 255, y[area] / 255
                ma, mb = (window * a).sum(), (window * b).sum()
                va, vb = (window * (a - ma) ** 2).sum(), (window * (b - mb) ** 2).sum()
                cov = (window * (a - ma) * (b - mb)).sum()
                c1, c2 = 0.01**2, 0.03**2
                values.append(((2 * ma * mb + c1) * (2 * cov + c2)) / ((ma**2 + mb**2 + c1) * (va + vb + c2)))
    assert ssim(x, y) == pytest.approx(np.mean(values), abs=1e-9)


def test_ssim_of_a_picture_with_itself_is_one_and_falls_with_noise():
    x = _noise()
    assert ssim(x, x) == pytest.approx(1)
    little = np.clip(x.astype(int) + np.random.default_rng(2).integers(-20, 21, x.shape), 0, 255).astype(np.uint8)
    assert 0.7 < ssim(little, x) < 0.999
