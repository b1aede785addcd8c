"""A level of the texture stage starts from copied pixels inside the hole, and from the net's fill near its edge."""

from __future__ import annotations

import numpy as np

from service.imaging.pool.parallel_steps import run_sequentially
from service.imaging.texture.level import Level
from service.imaging.texture.parameters import Parameters
from service.imaging.texture.patch_match import CompiledKernel


def test_it_starts_from_the_fill_at_the_edge_and_from_copied_pixels_inside(kernel: CompiledKernel) -> None:
    """What is known is black and the fill is white, so the brightness is the share of the fill."""
    hole = np.zeros((64, 64), np.bool_)
    hole[12:52, 12:52] = True
    white = np.repeat(hole[..., None], 3, 2).astype(np.float32)
    level = Level(white, hole, hole, Parameters(low_share=0), 1, run_sequentially)
    level.matches[:] = level.view.sources[0]
    level.start(kernel)
    shares = level.picture()[32, :, 0]
    assert (shares[:12] == 0).all()
    assert shares[12] > 0.85
    assert shares[32] < 0.2
    assert (np.diff(shares[12:32]) <= 0).all()


def middle_of_two_halves(dark: float, bright: float, kernel: CompiledKernel) -> np.ndarray:
    """Return the middle of a hole, half copied from a dark place and half from a bright one; both are flat."""
    hole = np.zeros((64, 128), np.bool_)
    hole[16:48, 32:96] = True
    grey = np.full((64, 128, 3), 0.5, np.float32)
    grey[:12, :64], grey[:12, 64:] = dark, bright
    level = Level(grey, hole, hole, Parameters(low_share=0, trust_decay=0.5), 1, run_sequentially)
    on_the_right = level.view.targets % 128 >= 64
    level.matches[:] = np.where(on_the_right, 5 * 128 + 96, 5 * 128 + 32)
    level.start(kernel)
    return level.picture()[32, 44:84, 0]


def test_patches_of_different_light_meet_without_an_edge(kernel: CompiledKernel) -> None:
    middle = middle_of_two_halves(0.48, 0.52, kernel)
    assert middle[0] < 0.495
    assert middle[-1] > 0.505
    assert np.abs(np.diff(middle)).max() < 0.005


def test_an_outline_between_copies_of_different_things_stays(kernel: CompiledKernel) -> None:
    middle = middle_of_two_halves(0.2, 0.8, kernel)
    assert np.abs(np.diff(middle)).max() > 0.1
