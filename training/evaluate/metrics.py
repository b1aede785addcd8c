"""PSNR, SSIM and L1 of 8-bit pictures."""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np

from training.evaluate.cases import Pixels
from training.evaluate.holes import Mask

_WINDOW, _SIGMA = 11, 1.5
_C1, _C2 = 0.01**2, 0.03**2
_IDENTICAL_DB = 100.0
"""The PSNR of identical pictures, instead of infinity, which would make every mean infinite."""


def psnr_db(found: Pixels, truth: Pixels) -> float:
    """Compute the peak signal-to-noise ratio over all pixels and channels in dB; 100 if they are identical."""
    error = float(np.mean(np.square(found.astype(np.float64) - truth)))
    return _IDENTICAL_DB if error == 0 else min(_IDENTICAL_DB, 20 * math.log10(255) - 10 * math.log10(error))


def l1(found: Pixels, truth: Pixels, hole: Mask | None) -> float:
    """Compute the mean absolute difference on the [0, 1] scale, in the hole or, without one, everywhere."""
    difference = np.abs(found.astype(np.float64) - truth) / 255
    return float(difference.mean() if hole is None else difference[hole].mean())


def ssim(found: Pixels, truth: Pixels) -> float:
    """Compute structural similarity, averaged over channels and pixels whose window lies inside the picture.

    Gaussian window of 11 pixels, sigma 1.5, K1 = 0.01, K2 = 0.03.
    Source: Wang et al., "Image Quality Assessment: From Error Visibility to Structural Similarity", 2004.
    """
    x, y = found.astype(np.float64) / 255, truth.astype(np.float64) / 255
    mean_x, mean_y = _blurred(x), _blurred(y)
    var_x, var_y = _blurred(x * x) - mean_x**2, _blurred(y * y) - mean_y**2
    covariance = _blurred(x * y) - mean_x * mean_y
    similar = ((2 * mean_x * mean_y + _C1) * (2 * covariance + _C2)) / (
        (mean_x**2 + mean_y**2 + _C1) * (var_x + var_y + _C2)
    )
    edge = _WINDOW // 2
    return float(similar[edge:-edge, edge:-edge].mean())


def _blurred(values: Any) -> Any:
    return cv2.GaussianBlur(values, (_WINDOW, _WINDOW), _SIGMA)
