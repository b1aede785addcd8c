"""Data sets with ids in separate files: small folder trees in their layouts."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from training.data.pictures import load_pictures, validation_pictures
from training.errors import DataMissing
from training.run_config import DataConfig

LABELS = np.array([[7, 7, 26, 26], [7, 7, 26, 26]], np.uint8).repeat(20, 0).repeat(20, 1)
INSTANCES = np.where(LABELS == 26, 26_001, 7).astype(np.uint16)


def picture(value: int) -> np.ndarray:
    return np.full((*LABELS.shape, 3), value, np.uint8)


def write(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), pixels)


@pytest.fixture
def cityscapes(tmp_path: Path) -> Path:
    for part, city, value in (("train", "ulm", 10), ("train", "aachen", 20), ("val", "bonn", 30)):
        name = f"{city}_000000_000019"
        write(tmp_path / "leftImg8bit" / part / city / f"{name}_leftImg8bit.png", picture(value))
        write(tmp_path / "gtFine" / part / city / f"{name}_gtFine_labelIds.png", LABELS)
        write(tmp_path / "gtFine" / part / city / f"{name}_gtFine_instanceIds.png", INSTANCES)
    return tmp_path


@pytest.fixture
def ade20k(tmp_path: Path) -> Path:
    for part, name in (("training", "ADE_train_00000001"), ("validation", "ADE_val_00000001")):
        write(tmp_path / "images" / part / f"{name}.jpg", picture(100))
        write(tmp_path / "annotations" / part / f"{name}.png", LABELS)
    return tmp_path


def test_cityscapes_has_classes_and_instances_of_files(cityscapes: Path) -> None:
    first, second = load_pictures(DataConfig(path=cityscapes, layout="cityscapes", load_side=40, crop=32))
    assert (first[0, 0, 3], second[0, 0, 3]) == (20, 10)  # sorted by city
    assert np.array_equal(first[..., 0], LABELS)
    assert np.array_equal(first[..., 1] + 256 * first[..., 2].astype(int), INSTANCES)


def test_the_shorter_side_is_resized_and_ids_are_not_mixed(cityscapes: Path) -> None:
    pairs = load_pictures(DataConfig(path=cityscapes, layout="cityscapes", load_side=27, crop=16))
    assert len(pairs) == 2
    for pair in pairs:
        assert pair.shape == (27, 54, 6)
        assert np.unique(pair[..., 0]).tolist() == [7, 26]
        assert np.unique(pair[..., 1] + 256 * pair[..., 2].astype(int)).tolist() == [7, 26_001]


def test_validation_is_the_other_part(cityscapes: Path) -> None:
    data = DataConfig(path=cityscapes, layout="cityscapes", load_side=40, crop=32, validation=cityscapes)
    (pair,) = validation_pictures(data)
    assert pair.shape == (32, 32, 6)
    assert pair[0, 0, 3] == 30


def test_instances_of_ade20k_are_connected_parts(ade20k: Path) -> None:
    for part in ("train", "val"):
        (pair,) = load_pictures(DataConfig(path=ade20k, layout="ade20k", split=part, load_side=40, crop=32))
        assert np.array_equal(pair[..., 0], LABELS)
        assert len(np.unique(pair[..., 1])) == 2


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="no pictures in layout 'ade20k', part train"):
        load_pictures(DataConfig(path=tmp_path, layout="ade20k"))


def test_a_picture_without_its_ids_is_named(cityscapes: Path) -> None:
    next(cityscapes.rglob("aachen*_labelIds.png")).unlink()
    with pytest.raises(DataMissing, match=r"aachen_000000_000019_gtFine_labelIds\.png: no map of ids"):
        load_pictures(DataConfig(path=cityscapes, layout="cityscapes"))


def test_colours_in_place_of_ids_are_named(ade20k: Path) -> None:
    write(ade20k / "annotations/training/ADE_train_00000001.png", picture(3))
    with pytest.raises(DataMissing, match="one grey number a pixel"):
        load_pictures(DataConfig(path=ade20k, layout="ade20k"))


def test_all_pictures_without_ids_are_named_at_once(cityscapes: Path) -> None:
    for picture_file in cityscapes.glob("leftImg8bit/train/*/*.png"):
        other = picture_file.with_name(picture_file.name.replace("_000019_", "_000020_"))
        other.write_bytes(picture_file.read_bytes())
    for ids in cityscapes.glob("gtFine/train/*/*_labelIds.png"):
        ids.unlink()
    with pytest.raises(DataMissing, match=r"(?s)_000019_gtFine_labelIds.*_000020_gtFine_labelIds"):
        load_pictures(DataConfig(path=cityscapes, layout="cityscapes"))
