import numpy as np
import pytest
from PIL import Image

from training.errors import DataMissing
from training.evaluate.cases import Protocol, read_cases
from training.evaluate.holes import Band


@pytest.fixture
def folder(tmp_path):
    """Write five pictures of 80×60 whose red encodes the column and whose green the row."""
    rows, columns = np.mgrid[0:60, 0:80]
    pixels = np.dstack([columns * 3, rows * 4, np.zeros_like(rows)]).astype(np.uint8)
    (tmp_path / "pictures").mkdir()
    for name in "edcba":
        Image.fromarray(pixels).save(tmp_path / f"pictures/{name}.png")
    (tmp_path / "pictures/._a.png").write_bytes(b"what a Mac keeps of a.png on a foreign disk")
    return tmp_path / "pictures"


def test_centre_crop_is_scaled_to_its_side_first(folder):
    (case, *_) = read_cases(Protocol(data=folder, size=30))
    assert case.truth.shape == (30, 30, 3)
    assert case.truth[..., 0].mean() == pytest.approx(39.5 * 3, abs=2)
    assert case.truth[0, 0, 1] < 10
    assert case.truth[-1, 0, 1] > 225


def test_whole_pictures_are_scaled_to_their_longer_side(folder):
    (case, *_) = read_cases(Protocol(data=folder, size=None, width=40))
    assert case.truth.shape == (30, 40, 3)


def test_bands_take_turns_and_the_seed_decides_the_holes(folder):
    def holes(seed):
        return list(read_cases(Protocol(data=folder, size=32, coverage=Band(0.1, 0.3), seed=seed)))

    first, again, other = holes(1), holes(1), holes(2)
    assert [case.name for case in first] == list("abcde")
    assert [case.band for case in first] == ["10-20 %", "20-30 %", "10-20 %", "20-30 %", "10-20 %"]
    assert all((a.hole == b.hole).all() for a, b in zip(first, again, strict=True))
    assert any((a.hole != b.hole).any() for a, b in zip(first, other, strict=True))
    assert (first[0].hole != first[2].hole).any()


def test_masks_of_a_folder_take_turns_and_count_in_the_band_they_cover(folder, tmp_path):
    (tmp_path / "masks").mkdir()
    mask = np.zeros((16, 16), np.uint8)
    mask[:4] = 255
    Image.fromarray(mask).save(tmp_path / "masks/1.png")
    Image.fromarray(np.where(mask, 127, 200).astype(np.uint8)).save(tmp_path / "masks/2.png")
    cases = list(read_cases(Protocol(data=folder, size=32, masks=tmp_path / "masks")))
    assert [case.band for case in cases] == ["20-30 %", "other"] * 2 + ["20-30 %"]
    assert cases[0].hole[:8].all()
    assert not cases[0].hole[8:].any()
    assert np.array_equal(cases[1].hole, np.logical_not(cases[0].hole))


def test_mask_that_marks_nothing_is_named(folder, tmp_path):
    (tmp_path / "masks").mkdir()
    Image.new("L", (16, 16)).save(tmp_path / "masks/black.png")
    with pytest.raises(DataMissing, match=r"black\.png: marks nothing to fill at 32×32"):
        list(read_cases(Protocol(data=folder, size=32, masks=tmp_path / "masks")))


def test_masks_beside_the_pictures_are_not_measured_but_may_be_the_masks(folder, tmp_path):
    Image.new("L", (80, 60), 255).save(folder / "a_mask.png")
    assert [case.name for case in read_cases(Protocol(data=folder, size=32))] == list("abcde")
    (tmp_path / "masks").mkdir()
    (folder / "a_mask.png").rename(tmp_path / "masks/a_mask.png")
    (case, *_) = read_cases(Protocol(data=folder, size=32, masks=tmp_path / "masks"))
    assert case.hole.all()


def test_sixteen_bits_are_scaled_to_eight(folder, tmp_path):
    Image.fromarray(np.full((60, 80), 1966, np.uint16)).save(folder / "a.png")  # 3 % of white
    (tmp_path / "masks").mkdir()
    dark_and_bright = np.repeat(np.uint16([[1966, 50000]]), 2, axis=0)
    Image.fromarray(dark_and_bright).save(tmp_path / "masks/1.png")
    (case, *_) = read_cases(Protocol(data=folder, size=32, masks=tmp_path / "masks"))
    assert set(np.unique(case.truth)) == {8}
    assert case.hole[:, 16:].all()
    assert not case.hole[:, :16].any()


@pytest.mark.parametrize(("direction", "source_is_left"), [("AtoB", True), ("BtoA", False)])
def test_pairs_are_cut_in_the_middle(direction, source_is_left, tmp_path):
    left, right = np.full((8, 8, 3), 10, np.uint8), np.full((8, 8, 3), 200, np.uint8)
    Image.fromarray(np.hstack([left, right])).save(tmp_path / "pair.png")
    (case,) = read_cases(Protocol(data=tmp_path, pairs=direction))
    assert case.hole is None
    assert (case.source == (left if source_is_left else right)).all()
    assert (case.truth == (right if source_is_left else left)).all()


def test_empty_folders_small_pictures_and_broken_files_are_named(folder, tmp_path):
    with pytest.raises(DataMissing, match="no pictures"):
        list(read_cases(Protocol(data=tmp_path)))
    with pytest.raises(DataMissing, match="80×60 is smaller than the crops of 256 pixels"):
        list(read_cases(Protocol(data=folder)))
    (folder / "a.png").write_bytes(b"nothing")
    with pytest.raises(DataMissing, match=r"a\.png: not a picture that can be decoded"):
        list(read_cases(Protocol(data=folder, size=32)))


def test_picture_of_more_pixels_than_pillow_decodes_is_named(folder, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(DataMissing, match=r"a\.png: .*exceeds limit"):
        list(read_cases(Protocol(data=folder, size=32)))


def test_kinds_take_turns_and_a_box_is_thicker_than_strokes(folder):
    cases = list(read_cases(Protocol(data=folder, size=60, coverage=Band(0.2, 0.3), kinds=("strokes", "boxes"))))
    assert [case.kind for case in cases] == ["strokes", "boxes", "strokes", "boxes", "strokes"]
    assert {case.thickness for case in cases if case.kind == "boxes"} <= {"9-16 px", "17-32 px"}
    assert {case.thickness for case in cases if case.kind == "strokes"} <= {"1-8 px", "9-16 px"}


def test_thickness_is_the_distance_to_the_nearest_known_pixel(folder):
    (case, *_) = read_cases(Protocol(data=folder, size=60))
    hole = np.zeros((60, 60), np.bool_)
    hole[:, 20:37] = True  # the middle column is 9 px from the known pixels
    assert case._replace(hole=hole).thickness == "9-16 px"
    hole[:, 20:35] = True
    hole[:, 35:] = False
    assert case._replace(hole=hole).thickness == "1-8 px"
    assert case._replace(hole=np.arange(60)[None].repeat(60, 0) > 9).thickness == "33-64 px"
    assert case._replace(hole=None).thickness == "all"
