"""The seam of a mask: its pixels, the nearest pixels outside the mask, and the weights."""

from __future__ import annotations

import numpy as np

from service.imaging.pasting.seam import find_seam


def test_the_weight_of_the_fill_grows_with_the_distance_from_the_edge() -> None:
    mask = np.ones((1, 12), np.bool_)
    mask[0, 0] = False
    seam = find_seam(mask, 4)
    assert seam.indices.tolist() == [1, 2, 3, 4]
    assert seam.nearest.tolist() == [0, 0, 0, 0]
    assert np.allclose(seam.weights, [0.2, 0.4, 0.6, 0.8])


def test_a_mask_of_the_whole_picture_has_no_seam() -> None:
    assert [array.size for array in find_seam(np.ones((9, 9), np.bool_), 4)] == [0, 0, 0]


def test_a_thick_hole_has_the_seam_that_its_edge_alone_has() -> None:
    """The hole's core is left out first; even beside a thin frame of known pixels no nearest pixel is in the core."""
    mask = np.zeros((200, 200), np.bool_)
    mask[10:190, 10:190] = True
    seam = find_seam(mask, 4)
    assert not mask.reshape(-1)[seam.nearest].any()
    rows, columns = np.divmod(seam.indices, 200)
    depths = np.minimum.reduce([rows - 9, 190 - rows, columns - 9, 190 - columns])
    assert len(depths) == 180**2 - 172**2
    assert depths.max() == 4
