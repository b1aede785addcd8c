from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from PIL import Image

from engines.manifest import FixedSize, MultipleSize
from export.errors import CalibrationInvalid
from retouch.int8.pictures import MAX_CALIBRATED, cases, split_pictures

TILES = MultipleSize(multiple_of=32, sides=(64, 96, 1024))


def fill_folder(folder, count, side=64):
    folder.mkdir(exist_ok=True)
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 256, (side, side + 6, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:03}.png", compress_level=0)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return fill_folder(tmp_path_factory.mktemp("pictures"), 90)


def test_judging_pictures_are_not_calibrated_on_and_the_seed_decides(folder):
    found = split_pictures(folder, seed=3, judging=40)
    assert (len(found.judging), len(found.calibrated)) == (40, 50)
    assert not {one.sha256 for one in found.judging} & {one.sha256 for one in found.calibrated}
    assert split_pictures(folder, seed=3, judging=40) == found
    other = split_pictures(folder, seed=4, judging=40)
    assert other.judging != found.judging
    assert other.sha256 != found.sha256


def test_the_same_picture_twice_counts_once(tmp_path):
    fill_folder(tmp_path, 40)
    for number in range(5):
        (tmp_path / f"again{number}.png").write_bytes((tmp_path / "000.png").read_bytes())
    found = split_pictures(tmp_path, seed=0, judging=5)
    assert len({one.sha256 for one in (*found.judging, *found.calibrated)}) == 40


@pytest.mark.parametrize("kind", ["missing", "empty", "file", "few", "small"])
def test_a_folder_without_enough_pictures_is_an_error_that_says_how_many(tmp_path, kind):
    folder = tmp_path / "folder"
    if kind == "file":
        folder.write_bytes(b"")
    elif kind != "missing":
        fill_folder(folder, {"empty": 0, "few": 20, "small": 40}[kind], 8 if kind == "small" else 64)
    wanted = "no such folder" if kind in ("missing", "file") else r"INT8 needs 132: 100 to judge"
    with pytest.raises(CalibrationInvalid, match=wanted):
        split_pictures(folder, seed=0)


@pytest.mark.parametrize("content", [b"", b"no picture", b"\x89PNG\r\n\x1a\n" + b"\0" * 40])
def test_a_file_that_is_no_picture_is_named(tmp_path, content):
    fill_folder(tmp_path, 3)
    (tmp_path / "broken.png").write_bytes(content)
    with pytest.raises(CalibrationInvalid, match=r"broken\.png: not a picture that can be decoded .* remove it"):
        split_pictures(tmp_path, seed=0, judging=1)


def test_a_picture_that_would_fill_the_memory_is_refused_by_its_header(tmp_path):
    fill_folder(tmp_path, 1)
    Image.new("1", (30_000, 30_000)).save(tmp_path / "huge.png")
    with pytest.raises(CalibrationInvalid, match=r"huge\.png: "):
        split_pictures(tmp_path, seed=0, judging=1)


def test_of_a_large_folder_only_what_is_needed_is_read_and_one_at_a_time(tmp_path):
    fill_folder(tmp_path, MAX_CALIBRATED + 40, 160)
    tracemalloc.start()
    found = split_pictures(tmp_path, seed=0, judging=10)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(found.judging), len(found.calibrated)) == (10, MAX_CALIBRATED)
    assert most < 10 * 160 * 166 * 3


def test_holes_come_from_the_seed_and_every_kind_and_coverage_occurs(folder):
    photographs = split_pictures(folder, seed=0, judging=40).judging
    first, again = (list(cases(photographs, TILES, "0 judging")) for _ in range(2))
    assert all(np.array_equal(one.hole, two.hole) for one, two in zip(first, again, strict=True))
    assert len({(case.kind, case.band) for case in first}) == 12
    assert all(case.hole.any() for case in first)
    other = list(cases(photographs, TILES, "1 judging"))
    assert any(not np.array_equal(one.hole, two.hole) for one, two in zip(first, other, strict=True))


def test_pictures_have_the_sides_of_tiles_up_to_512_and_are_never_enlarged(folder):
    photographs = split_pictures(folder, seed=0, judging=40).judging
    assert {case.truth.shape for case in cases(photographs, TILES, "0")} == {(64, 64, 3)}
    shrunk = cases(photographs, FixedSize(height=32, width=32), "0")
    assert {case.truth.shape for case in shrunk} == {(32, 32, 3)}
