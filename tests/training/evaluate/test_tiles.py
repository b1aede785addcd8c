"""Tiles of the evaluation equal the service's, so figures hold for the served model."""

import numpy as np
import pytest

from engines.manifest import FixedSize, MultipleSize, SizeRule, TensorSpec
from service.core.pictures import Picture, Size
from service.imaging import crops, postprocess, preprocess
from service.imaging.files.label_maps import fit_ids_to_tile
from training.evaluate.tiles import hole_tile, ids_tile, lay_out, picture_of_tile, picture_tile

RULES = {
    "padded": MultipleSize(multiple_of=64, sides=(64, 128)),
    "resized": MultipleSize(multiple_of=64, sides=(64, 128), fit="resize"),
    "fixed": FixedSize(height=96, width=64),
    "symmetric": MultipleSize(multiple_of=64, sides=(64, 128), padding="symmetric"),
}
SIZES = [(64, 64), (40, 64), (65, 20), (100, 200), (1, 129), (300, 70), (31, 57)]


class ManifestOfPictures:
    """A stand-in for a manifest, with the fields that the service's stages read."""

    image_channels = output_channels = 3

    def __init__(self, size: SizeRule) -> None:
        self.size = size

    def input(self, name):
        return TensorSpec(name="mask", dtype="float32", shape=("batch", 1, "height", "width"))


def _case(height, width):
    rng = np.random.default_rng(height * width)
    return rng.integers(0, 256, (height, width, 3), np.uint8), rng.random((height, width)) < 0.03


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_layout_is_that_of_the_service_with_strategy_whole(rule, size):
    planned = crops.plan_whole(Size(*size), rule)
    assert lay_out(rule, *size)[:2] == (planned.scaled, planned.tile)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_net_sees_the_pixels_and_holes_that_the_service_shows_it(rule, size):
    pixels, hole = _case(*size)
    planned, placement = crops.plan_whole(Size(*size), rule), lay_out(rule, *size)
    served = preprocess.inpaint_sample(Picture(pixels), hole, planned, ManifestOfPictures(rule)).arrays
    assert (picture_tile(pixels, placement, "inpaint") == served["image"]).all()
    assert (hole_tile(hole, placement) == served["mask"]).all()
    if rule.padding == "reflect":  # a translation has no other
        served = preprocess.translate_sample(Picture(pixels), planned, ManifestOfPictures(rule)).arrays
        assert (picture_tile(pixels, placement, "translate") == served["image"]).all()


@pytest.mark.parametrize("rule", [RULES["padded"], RULES["resized"], RULES["fixed"]], ids=str)
@pytest.mark.parametrize("size", [size for size in SIZES if min(size) > 1], ids=str)
def test_net_sees_the_ids_that_the_service_shows_it(rule, size):
    ids = np.random.default_rng(1).integers(0, 60_000, size, np.int32)
    planned, placement = crops.plan_whole(Size(*size), rule), lay_out(rule, *size)
    assert (ids_tile(ids, placement) == fit_ids_to_tile(ids, planned)).all()


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_output_is_scaled_back_as_the_service_does_it(rule, size):
    pixels, _ = _case(*size)
    planned, placement = crops.plan_whole(Size(*size), rule), lay_out(rule, *size)
    tile, _ = _case(*placement.tile)
    served = postprocess.translated_picture(Picture(pixels), planned, tile, ManifestOfPictures(rule))
    assert (picture_of_tile(tile, placement, size) == served.pixels).all()
