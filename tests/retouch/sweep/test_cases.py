"""The cases of a sweep: every cell has the same number of pictures, and no picture is enlarged."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from PIL import Image

from retouch.sweep.cases import BANDS, crop_or_scale, draw_cases, find_pictures
from training.errors import DataMissing
from training.evaluate.shapes import KINDS


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "inner").mkdir()
    noise = np.random.default_rng(0)
    for name, (height, width) in {
        "a.png": (64, 96),
        "b.jpg": (80, 70),
        "inner/c.png": (64, 64),
        "d.png": (9, 9),
    }.items():
        Image.fromarray(noise.integers(0, 256, (height, width, 3), np.uint8)).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / "._a.png").write_bytes(b"what a Mac keeps of a.png on a foreign disk")
    (tmp_path / ".thumbnails").mkdir()
    (tmp_path / ".thumbnails/a.png").write_bytes(b"smaller")
    return tmp_path


def test_pictures_in_folders_below_count_and_the_seed_shuffles_them(folder):
    assert sorted(path.name for path in find_pictures(folder, 0)) == ["a.png", "b.jpg", "c.png", "d.png"]
    assert find_pictures(folder, 0) == find_pictures(folder, 0)
    assert len({tuple(find_pictures(folder, seed)) for seed in range(8)}) > 1


def test_a_folder_without_pictures_is_refused(tmp_path):
    with pytest.raises(DataMissing, match="is the path right"):
        find_pictures(tmp_path, 0)


def test_every_coverage_and_kind_gets_its_pictures_and_small_ones_are_passed_over(folder):
    cases = list(draw_cases(find_pictures(folder, 0), 64, True, 2, 0))
    assert Counter((case.band, case.kind) for case in cases) == {(band, kind): 2 for band in BANDS for kind in KINDS}
    assert {case.name for case in cases} == {"a", "b", "c"}
    for case in cases:
        assert case.truth.shape == (64, 64, 3)
        assert case.hole.shape == (64, 64)
        assert case.band.low - 0.001 <= case.hole.mean() <= case.band.high + 0.001


def test_holes_are_those_of_the_seed(folder):
    paths = find_pictures(folder, 0)
    one, again, other = (next(iter(draw_cases(paths, 64, True, 1, seed))).hole for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


def test_pictures_that_are_all_too_small_are_refused(folder):
    with pytest.raises(DataMissing, match="none of 4 pictures has 500 pixels"):
        next(iter(draw_cases(find_pictures(folder, 0), 500, True, 1, 0)))


@pytest.mark.parametrize(
    ("shape", "square", "framed"),
    [((64, 96), True, (32, 32)), ((64, 96), False, (21, 32)), ((32, 32), True, (32, 32)), ((31, 64), True, None)],
)
def test_a_picture_is_scaled_down_and_cut_but_never_enlarged(shape, square, framed):
    found = crop_or_scale(np.zeros((*shape, 3), np.uint8), 32, square=square)
    assert (None if found is None else found.shape[:2]) == framed
