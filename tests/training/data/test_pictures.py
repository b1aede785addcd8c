"""Training pictures are found and decoded in every layout."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from engines.manifest import FixedSize, TensorSpec
from service.core.pictures import Picture, Size
from service.imaging.crops import plan_whole
from service.imaging.preprocess import translate_sample
from training.config import DataConfig
from training.data.pictures import load_pictures, validation_pictures
from training.errors import DataMissing

RNG = np.random.default_rng(1)


def write(path: Path, height: int = 40, width: int = 50, red: int = 0) -> None:
    """Write a PNG with one value of red, which identifies the picture."""
    path.parent.mkdir(parents=True, exist_ok=True)
    bgr = np.zeros((height, width, 3), np.uint8)
    bgr[..., 2] = red
    cv2.imwrite(str(path), bgr)


def load(path: Path, **options: Any) -> list[np.ndarray]:
    return load_pictures(DataConfig(path=path, **{"load_side": 32, "crop": 32} | options))


def reds(pictures: list[np.ndarray]) -> list[int]:
    return [int(picture[0, 0, 0]) for picture in pictures]


def test_a_folder_is_read_in_the_order_of_paths_and_in_rgb(tmp_path: Path) -> None:
    for name, red in (("b/2.png", 2), ("a/3.png", 3), ("c.png", 4)):
        write(tmp_path / name, red=red)
    (tmp_path / "notes.txt").write_text("no picture")
    assert reds(load(tmp_path)) == [3, 2, 4]
    assert reds(load(tmp_path, limit=2)) == [3, 2]


def test_large_pictures_shrink_small_ones_grow_and_others_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path / "1.png", 100, 200)
    write(tmp_path / "2.png", 10, 20)
    write(tmp_path / "3.png", 36, 70)
    shapes = [picture.shape for picture in load(tmp_path, load_side=40)]
    assert shapes == [(40, 80, 3), (32, 64, 3), (36, 70, 3)]


def test_shards_are_read_in_order_whichever_thread_decodes(tmp_path: Path) -> None:
    for shard in range(2):
        with tarfile.open(tmp_path / f"{shard}.tar", "w") as archive:
            for number in range(5):
                path = tmp_path / f"{number}.png"
                write(path, red=10 * shard + number)
                archive.add(path, f"inner/{number}.png")
                path.unlink()
    wanted = [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert reds(load(tmp_path, layout="shards", threads=3)) == wanted
    assert reds(load(tmp_path / "1.tar", layout="shards")) == wanted[5:]


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    (tmp_path / "0.tar").write_bytes(b"not a tar" * 100)
    with pytest.raises(DataMissing, match=r"0\.tar"):
        load(tmp_path, layout="shards")


def test_pairs_are_split_and_the_direction_says_what_goes_in(tmp_path: Path) -> None:
    left, right = np.full((40, 40, 3), 10, np.uint8), np.full((40, 40, 3), 200, np.uint8)
    cv2.imwrite(str(tmp_path / "1.png"), np.concatenate([left, right], 1))
    for direction, first in (("AtoB", 10), ("BtoA", 200)):
        [pair] = load(tmp_path, layout="pairs", direction=direction)
        assert pair.shape == (32, 32, 6)
        assert pair[0, 0].tolist() == [first] * 3 + [210 - first] * 3


class ManifestOfPictures:
    """A stand-in for a manifest, with the fields that the service's preprocessing reads."""

    image_channels = 3

    def input(self, name: str) -> TensorSpec | None:
        return None


def test_pairs_are_scaled_as_the_service_scales_what_it_translates(tmp_path: Path) -> None:
    both = RNG.integers(0, 256, (150, 260, 3), np.uint8)
    cv2.imwrite(str(tmp_path / "1.png"), both[..., ::-1])
    [pair] = load(tmp_path, layout="pairs")
    crop = plan_whole(Size(150, 130), FixedSize(height=32, width=32))
    for half, pixels in ((pair[..., :3], both[:, :130]), (pair[..., 3:], both[:, 130:])):
        served = translate_sample(Picture(np.ascontiguousarray(pixels)), crop, ManifestOfPictures())
        np.testing.assert_array_equal(half, served.arrays["image"])


@pytest.mark.parametrize("listed", ["list_eval_partition.txt", "list_eval_partition.csv"])
def test_celeba_is_split_by_its_list(tmp_path: Path, listed: str) -> None:
    for number in range(3):
        write(tmp_path / "img_align_celeba" / f"{number}.png", red=number)
    separator, header = (" ", "") if listed.endswith("txt") else (",", "image_id,partition\n")
    lines = [f"{number}.png{separator}{part}" for number, part in enumerate((0, 1, 0))]
    (tmp_path / listed).write_text(header + "\n".join(lines))
    assert reds(load(tmp_path, layout="celeba")) == [0, 2]
    assert reds(load(tmp_path, layout="celeba", split="val")) == [1]


def test_celeba_without_its_list_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="list_eval_partition"):
        load(tmp_path, layout="celeba")


def test_celeba_hq_is_split_as_the_pictures_it_was_made_of(tmp_path: Path) -> None:
    lines = ["idx         orig_idx    orig_file"]
    for number, original in enumerate((119613, 162769, 162770, 182636, 182637)):
        write(tmp_path / "CelebA-HQ-img" / f"{number}.jpg", red=50 * number)
        lines.append(f"{number:<12}{original:<12}{original + 1:06}.jpg")
    (tmp_path / "CelebA-HQ-to-CelebA-mapping.txt").write_text("\n".join(lines) + "\n")
    assert reds(load(tmp_path, layout="celeba_hq")) == pytest.approx([0, 50], abs=3)
    assert reds(load(tmp_path, layout="celeba_hq", split="val")) == pytest.approx([100, 150], abs=3)


def test_celeba_hq_without_its_mapping_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "CelebA-HQ-img" / "0.jpg")
    with pytest.raises(DataMissing, match="CelebA-HQ-to-CelebA-mapping"):
        load(tmp_path, layout="celeba_hq")


def test_places_has_a_folder_for_each_part(tmp_path: Path) -> None:
    write(tmp_path / "data_256_standard" / "a" / "abbey" / "1.png", red=1)
    write(tmp_path / "val_256" / "1.png", red=2)
    assert reds(load(tmp_path, layout="places")) == [1]
    assert reds(load(tmp_path, layout="places", split="val")) == [2]
    with pytest.raises(DataMissing, match="data_large"):
        load(tmp_path / "val_256", layout="places")


def test_what_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8 no more")
    with pytest.raises(DataMissing, match=r"broken\.jpg"):
        load(tmp_path)
    (tmp_path / "broken.jpg").write_bytes(b"")
    with pytest.raises(DataMissing, match=r"broken\.jpg"):
        load(tmp_path)


def test_all_broken_files_are_named_at_once(tmp_path: Path) -> None:
    write(tmp_path / "whole.png")
    for name in ("a.jpg", "b.png"):
        (tmp_path / name).write_bytes(b"no picture")
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataMissing, match=r"(?s)^3 of 4 files .*a\.jpg: not a.*b\.png.*gone\.png: cannot be read"):
        load(tmp_path)


@pytest.mark.parametrize("layout", ["folder", "shards"])
def test_nothing_to_train_on_is_an_error(tmp_path: Path, layout: str) -> None:
    with pytest.raises(DataMissing, match=r"data\.path"):
        load(tmp_path, layout=layout)
    with pytest.raises(DataMissing, match="no such folder"):
        load(tmp_path / "absent")


def test_validation_pictures_are_central_squares(tmp_path: Path) -> None:
    write(tmp_path / "val" / "1.png", 60, 100, red=7)
    data = DataConfig(path=tmp_path, load_side=48, crop=32, validation=tmp_path / "val")
    [picture] = validation_pictures(data)
    assert picture.shape == (32, 32, 3)
    assert validation_pictures(data.model_copy(update={"validation": None})) == []


def test_a_listed_picture_that_is_not_there_is_named(tmp_path: Path) -> None:
    write(tmp_path / "img_align_celeba" / "000001.jpg")
    (tmp_path / "list_eval_partition.txt").write_text("000001.jpg 0\n000002.jpg 0\n")
    with pytest.raises(DataMissing, match=r"000002\.jpg: cannot be read"):
        load(tmp_path, layout="celeba")
