"""The Fourier transform of features in channels-last memory, in two products each way.

A GPU that keeps channels last would copy features for `fourier.spectrum`, which transforms planes. Here channels stay
innermost, real and imaginary parts are two blocks of channels, and one product takes each axis, rows first. Scales are
those of fourier.py: 1/√length in each axis, so that FP16 holds the intermediate values.
"""

from __future__ import annotations

import torch
from torch import Tensor

from export.generators.lama.fourier import fourier_matrices


class FourierProducts:
    """The transform of N×H×W×C and its inverse, for features of one size; K = W/2 + 1."""

    def __init__(self, x: Tensor) -> None:
        """Make the matrices for features N×C×H×W, in their type."""
        self.height, self.width = x.shape[2:]
        made, height = fourier_matrices(x), self.height
        cos, sin = made.rows[:height, :height], made.rows[:height, height:]
        real, imaginary = made.columns_real.t(), made.columns_imaginary.t()
        of_real, of_imaginary = torch.stack([real, imaginary], 1), torch.stack([imaginary, -real], 1)
        self.rows = torch.stack([cos, sin], 1).reshape(2 * height, -1)
        self.columns = torch.stack([of_real, of_imaginary], 1).reshape(2 * real.shape[0], -1)
        back_real, back_imaginary = made.back_real, made.back_imaginary
        left, right = torch.stack([back_real, back_imaginary], 1), torch.stack([back_imaginary, -back_real], 1)
        self.columns_back = torch.stack([left, right], 2).reshape(2 * real.shape[0], 2 * self.width).t()
        self.rows_back = torch.stack([cos, sin], 2).reshape(height, 2 * height)

    def forward(self, y: Tensor) -> Tensor:
        """Transform N×H×W×C to N×H×K×2C."""
        number, height, width, channels = y.shape
        by_rows = torch.matmul(self.rows, y.reshape(number, height, width * channels))
        by_rows = by_rows.reshape(number * height, 2 * width, channels)
        return torch.matmul(self.columns, by_rows).reshape(number, height, -1, 2 * channels)

    def back(self, spectrum: Tensor) -> Tensor:
        """Transform N×H×K×2C to N×H×W×C; also accepts values that are not the spectrum of real features."""
        number, height, columns, channels = spectrum.shape
        pairs = spectrum.reshape(number * height, 2 * columns, channels // 2)
        by_columns = torch.matmul(self.columns_back, pairs).reshape(number, 2 * height, -1)
        return torch.matmul(self.rows_back, by_columns).reshape(number, height, self.width, channels // 2)
