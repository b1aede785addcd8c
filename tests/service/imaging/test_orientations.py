"""A model sees its input in eight orientations, and its tiles come back as they lie in the picture."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engines.manifest import FixedSize, Manifest, MultipleSize
from service.core.batch_rows import Sample
from service.core.pictures import Size
from service.imaging.orientations import ORIENTATIONS, Orientation, can_turn, turn_back, turn_row

MakeManifest = Callable[..., Manifest]


def row_of(height: int, width: int) -> Sample:
    image = np.arange(height * width * 3, dtype=np.uint8).reshape(height, width, 3)
    return Sample(Size(height, width), {"image": image, "mask": image[:, :, 0] % 2})


def test_eight_orientations_of_a_square_all_differ() -> None:
    row = row_of(4, 4)
    seen = {turn_row(row, orientation).arrays["image"].tobytes() for orientation in ORIENTATIONS}
    assert len(seen) == len(ORIENTATIONS) == 8


def test_the_first_result_sees_the_row_itself() -> None:
    row = row_of(4, 6)
    assert turn_row(row, ORIENTATIONS[0]) is row


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_a_tile_comes_back_as_it_was_before_it_was_turned(orientation: Orientation) -> None:
    row = row_of(4, 6)
    turned = turn_row(row, orientation)
    assert turned.tile == turned.arrays["image"].shape[:2] == turned.arrays["mask"].shape
    assert all(array.flags.c_contiguous for array in turned.arrays.values())
    np.testing.assert_array_equal(turn_back(turned.arrays["image"], orientation), row.arrays["image"])


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_a_grey_tile_keeps_its_axis_of_channels(orientation: Orientation) -> None:
    grey = row_of(4, 6).arrays["image"][:, :, :1]
    turned = turn_row(Sample(Size(4, 6), {"image": grey}), orientation).arrays["image"]
    assert turned.ndim == 3
    np.testing.assert_array_equal(turn_back(turned, orientation), grey)


def test_image_and_mask_are_turned_together() -> None:
    for orientation in ORIENTATIONS:
        turned = turn_row(row_of(4, 6), orientation)
        np.testing.assert_array_equal(turned.arrays["mask"], turned.arrays["image"][:, :, 0] % 2)


@pytest.mark.parametrize(
    ("size", "task", "turns"),
    [
        (MultipleSize(multiple_of=32, sides=(64, 128)), "inpaint", True),
        (FixedSize(height=64, width=64), "inpaint", True),
        (FixedSize(height=64, width=128), "inpaint", False),
        (FixedSize(height=64, width=64, fit="crop", hole=(16, 16, 48, 48)), "inpaint", False),
        (MultipleSize(multiple_of=32, sides=(64, 128)), "translate", False),
    ],
)
def test_a_model_turns_pictures_if_it_fills_tiles_of_both_orientations(
    fake_manifest: MakeManifest, size: FixedSize | MultipleSize, task: str, turns: bool
) -> None:
    assert can_turn(fake_manifest("m", task, size=size)) == turns
