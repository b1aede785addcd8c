from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from engines.manifest import FixedSize, MultipleSize
from export.errors import SamplesMissing
from export.generators.family import Interface, image_tensor
from export.parity_inputs import MASK_KINDS, draw_mask, find_pictures, parity_inputs

IMAGE, MASK, OUTPUT = image_tensor("image", 3), image_tensor("mask", 1), image_tensor("output", 3)
DYNAMIC = MultipleSize(multiple_of=8, sides=(16, 32))


def _rng():
    return np.random.default_rng(1)


def _samples(interface, pictures_dir):
    return list(parity_inputs(interface, find_pictures(pictures_dir), _rng()))


def test_inpainting_is_compared_on_every_mask_batch_and_size(pictures_dir):
    samples = _samples(Interface("inpaint", (IMAGE, MASK), OUTPUT, DYNAMIC), pictures_dir)
    assert [sample.name for sample in samples] == [
        *("ordinary 1", "ordinary 2", "ordinary 3"),
        *("empty mask", "full mask", "thin mask", "sparse mask"),
        *("batch of 3", "16×32"),
    ]
    assert [sample.feed["image"].shape for sample in samples[-2:]] == [(3, 3, 16, 16), (1, 3, 16, 32)]
    assert {array.dtype for sample in samples for array in sample.feed.values()} == {np.dtype(np.float32)}


def test_fixed_sizes_without_masks_are_compared_on_pictures_and_a_batch(pictures_dir):
    samples = _samples(Interface("translate", (IMAGE,), OUTPUT, FixedSize(height=8, width=12)), pictures_dir)
    assert [sample.name for sample in samples] == ["ordinary 1", "ordinary 2", "ordinary 3", "batch of 3"]
    assert samples[0].feed["image"].shape == (1, 3, 8, 12)


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_pictures_have_the_models_channels_on_the_unit_scale(channels, pictures_dir):
    interface = Interface("translate", (image_tensor("image", channels),), OUTPUT, DYNAMIC)
    image = _samples(interface, pictures_dir)[0].feed["image"]
    assert image.shape == (1, channels, 16, 16)
    assert 0 <= image.min() < image.max() <= 1


def test_masks_are_what_they_are_called():
    masks = {kind: draw_mask(kind, (64, 48), _rng()) for kind in MASK_KINDS}
    shares = {kind: float(mask.mean()) for kind, mask in masks.items()}
    assert shares["empty"] == 0
    assert shares["full"] == 1
    assert 0 < shares["thin"] < 0.25 < shares["sparse"] < 1
    assert 0.1 < shares["ordinary"] < 0.9
    assert all(set(np.unique(mask)) <= {0, 1} and mask.shape == (64, 48) for mask in masks.values())


def test_masks_are_the_same_for_the_same_seed():
    assert np.array_equal(draw_mask("ordinary", (32, 32), _rng()), draw_mask("ordinary", (32, 32), _rng()))


def test_masks_are_not_taken_for_pictures(tmp_path):
    for name in ("a.png", "a_mask.png", "notes.txt"):
        Image.new("RGB", (2, 2)).save(tmp_path / name, "PNG")
    assert len(find_pictures(tmp_path)) == 1


def test_hidden_files_and_folders_are_not_taken_for_pictures(tmp_path):
    Image.new("RGB", (2, 2)).save(tmp_path / "b.png")
    (tmp_path / "._b.png").write_bytes(b"what a Mac keeps of b.png on a foreign disk")
    (tmp_path / "a.png").mkdir()
    assert len(find_pictures(tmp_path)) == 1


def test_pictures_are_spread_over_a_large_folder(tmp_path):
    for value in range(9):
        Image.new("L", (2, 2), value).save(tmp_path / f"{value}.png")
    assert [picture.getpixel((0, 0))[0] for picture in find_pictures(tmp_path)] == [0, 3, 6]


def test_only_the_pictures_that_are_taken_are_decoded(tmp_path):
    for value in range(9):
        Image.new("L", (2, 2), value).save(tmp_path / f"{value}.png")
    for value in (1, 2, 4, 5, 7, 8):
        (tmp_path / f"{value}.png").write_bytes(b"no picture")
    assert [picture.getpixel((0, 0))[0] for picture in find_pictures(tmp_path)] == [0, 3, 6]


def test_picture_of_more_pixels_than_pillow_decodes_is_named(tmp_path, monkeypatch):
    Image.new("L", (30, 30)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(SamplesMissing, match=r"a\.png: .*exceeds limit"):
        find_pictures(tmp_path)


def test_folders_without_pictures_are_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(SamplesMissing, match=r"no pictures .* --images"):
            find_pictures(folder)


def test_a_file_that_is_no_picture_is_named(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"no")
    with pytest.raises(SamplesMissing, match=r"a\.jpg: not a picture"):
        find_pictures(tmp_path)
