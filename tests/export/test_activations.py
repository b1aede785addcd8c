from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from export.activations import fits_fp16, largest_activation


class Peaked(nn.Module):
    """A net whose largest activation is an inner one, and whose weights and vectors are larger still."""

    def __init__(self, peak: float) -> None:
        super().__init__()
        self.peak = peak

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        vector = torch.full((3,), 1e6)
        return (x * self.peak).relu() / self.peak + 0 * vector.sum()


@pytest.mark.parametrize("peak", [3.0, -70000.0])
def test_largest_value_between_the_layers_is_found(peak):
    feeds = [{"image": np.full((1, 1, 2, 2), value, np.float32)} for value in (0.5, 1, 0.25)]
    assert largest_activation(Peaked(peak), feeds) == abs(peak)


def test_nan_counts_as_infinity():
    assert math.isinf(largest_activation(nn.Identity(), [])) is False
    assert largest_activation(Peaked(1), [{"image": np.full((1, 1, 2, 2), np.nan, np.float32)}]) == math.inf


def test_a_quarter_of_what_half_holds_is_accepted():
    assert (fits_fp16(16376), fits_fp16(16377), fits_fp16(math.inf)) == (True, False, False)
