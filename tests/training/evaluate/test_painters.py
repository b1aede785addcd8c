import numpy as np
import pytest
import torch

from engines.engine_choice import EngineOptions
from engines.errors import ModelNotFound
from engines.manifest import FixedSize, MultipleSize
from export.generators.family import Interface, image_tensor
from export.generators.pconv.unet import PConv, PConvOptions
from training.evaluate.cases import Case
from training.evaluate.painters import NetPainter, OpenCvPainter, TorchPainter, open_model


class InvertingPainter(NetPainter):
    """A painter whose net inverts the tile, exceeds [0, 1] and records its feed."""

    def _run(self, feed):
        self.feed = feed
        return (1 - feed["image"]) * 1.5 - 0.25

    def close(self):
        pass


def _inverting(task, size):
    inputs = [image_tensor("image", 3), image_tensor("mask", 1)][: 2 if task == "inpaint" else 1]
    return InvertingPainter("inverting", Interface(task, tuple(inputs), image_tensor("output", 3), size))


def _case(height, width, hole=True):
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (height, width, 3)).astype(np.uint8)
    mask = np.zeros((height, width), np.bool_)
    mask[2:9, -5:] = True
    return Case("x", pixels, pixels, mask if hole else None, "all")


@pytest.mark.parametrize(
    ("height", "width", "tile"),
    [(64, 64, (64, 64)), (40, 64, (64, 64)), (65, 20, (128, 64)), (100, 30, (128, 64)), (1, 127, (64, 128))],
)
def test_picture_is_reflected_into_the_smallest_tile_and_only_the_hole_is_taken(height, width, tile):
    painter = _inverting("inpaint", MultipleSize(multiple_of=64, sides=(64, 128)))
    case = _case(height, width)
    found = painter.paint(case)
    assert painter.feed["image"].shape == (1, 3, *tile)
    assert painter.feed["mask"].shape == (1, 1, *tile)
    assert set(np.unique(painter.feed["mask"])) <= {0, 1}
    assert found.shape == case.truth.shape
    assert (found[~case.hole] == case.source[~case.hole]).all()
    wanted = np.clip((1 - case.source / 255) * 1.5 - 0.25, 0, 1) * 255
    assert np.abs(found - wanted)[case.hole].max(initial=0) <= 0.51
    if width + 2 < tile[1]:
        image = painter.feed["image"][0]
        assert (image[:, :height, width : width + 2] == image[:, :height, width - 2 : width - 4 : -1]).all()


def test_translation_takes_the_whole_output_and_a_fixed_tile_is_resized_to_and_from():
    painter = _inverting("translate", FixedSize(height=32, width=32))
    flat = np.full((64, 48, 3), 51, np.uint8)
    found = painter.paint(Case("x", flat, flat, None, "all"))
    assert painter.feed["image"].shape == (1, 3, 32, 32)
    assert "mask" not in painter.feed
    assert found.shape == (64, 48, 3)
    assert np.abs(found.astype(int) - round(((1 - 0.2) * 1.5 - 0.25) * 255)).max() <= 1


def test_picture_larger_than_every_tile_is_scaled_down_as_in_the_service():
    painter = _inverting("inpaint", MultipleSize(multiple_of=64, sides=(64, 128)))
    case = _case(100, 200)
    found = painter.paint(case)
    assert painter.feed["image"].shape == (1, 3, 64, 128)
    assert painter.feed["mask"].sum() >= case.hole.sum() * 0.64**2
    assert found.shape == case.truth.shape
    assert (found[~case.hole] == case.source[~case.hole]).all()


def test_thin_hole_is_not_lost_where_the_net_resizes():
    painter = _inverting("inpaint", FixedSize(height=32, width=32))
    hole = np.zeros((128, 128), np.bool_)
    hole[1::8] = True  # between the rows that nearest-neighbour sampling picks
    pixels = np.zeros((128, 128, 3), np.uint8)
    painter.paint(Case("x", pixels, pixels, hole, "all"))
    assert painter.feed["mask"].mean() == 0.5


@pytest.mark.parametrize("method", ["telea", "ns"])
def test_opencv_continues_a_flat_picture_and_leaves_the_rest_alone(method):
    pixels = np.full((40, 40, 3), 120, np.uint8)
    hole = np.zeros((40, 40), np.bool_)
    hole[12:20, 15:30] = True
    spoilt = np.where(hole[..., None], np.uint8(255), pixels)
    found = OpenCvPainter(method).paint(Case("x", spoilt, pixels, hole, "all"))
    assert (found[~hole] == 120).all()
    assert np.abs(found[hole].astype(int) - 120).max() <= 4


def test_checkpoint_is_run_by_torch(tmp_path):
    options = PConvOptions(levels=2, width=2)
    net = PConv().build(options)
    torch.save(net.state_dict(), tmp_path / "net.pth")
    painter = open_model(tmp_path / "net.pth", EngineOptions())
    assert isinstance(painter, TorchPainter)
    case = _case(30, 40)
    found = painter.paint(case)
    assert found.shape == (30, 40, 3)
    assert (found[~case.hole] == case.source[~case.hole]).all()
    painter.close()


def test_missing_model_is_named(tmp_path):
    with pytest.raises(ModelNotFound, match="nowhere: no such model"):
        open_model(tmp_path / "nowhere", EngineOptions())
