"""CMP Facades' colours turned into class ids, and instances into connected parts."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from training.config import DataConfig
from training.data.label_maps import FACADE_CLASSES, FACADE_COLOURS, connected_parts, facade_labels, stack_labels
from training.data.pictures import load_pictures, validation_pictures

TABLE = np.array(list(FACADE_COLOURS.values()), np.uint8)
ROOT = Path(__file__).resolve().parents[3]


def drawn() -> NDArray[np.uint8]:
    """Return a facade of 64² with windows, their sills and a door, as class numbers."""
    labels = np.full((64, 64), 1, np.uint8)
    labels[8:, 6:58] = 2
    for left in (10, 26, 42):
        labels[14:26, left : left + 10], labels[26:30, left : left + 10] = 3, 6
    labels[44:, 24:38] = 4
    return labels


def jpeg(pixels: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    encoded = cv2.imencode(".jpg", pixels[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return np.asarray(cv2.imdecode(encoded, cv2.IMREAD_COLOR)[..., ::-1], np.uint8)


def test_every_class_has_the_number_that_the_data_set_gives_it() -> None:
    wanted = "background facade window door cornice sill balcony blind deco molding pillar shop"
    assert list(FACADE_COLOURS) == wanted.split()
    assert facade_labels(TABLE[None]).tolist() == [list(range(1, 13))]
    assert FACADE_CLASSES == 13


def test_colours_that_a_jpeg_has_changed_keep_their_class() -> None:
    found = facade_labels(jpeg(TABLE[drawn() - 1], 75))
    assert (found == drawn()).mean() > 0.97


def test_a_border_of_two_classes_shows_no_third() -> None:
    """The nearest colour alone finds other classes in the mixtures that a JPEG makes of two colours."""
    labels = np.full((64, 64), 2, np.uint8)
    labels[20:40, 19:45] = 9
    pixels = jpeg(TABLE[labels - 1], 75)
    naive = np.linalg.norm(pixels[:, :, None].astype(float) - TABLE, axis=3).argmin(2) + 1
    assert len(np.unique(naive)) > 2
    assert np.unique(facade_labels(pixels)).tolist() == [2, 9]


def test_a_pixel_without_a_sure_neighbour_gets_the_nearest_colour() -> None:
    assert facade_labels(np.full((3, 3, 3), (255, 0, 90), np.uint8)).tolist() == [[11] * 3] * 3


def test_each_connected_part_of_a_class_is_an_instance() -> None:
    labels = np.array([[3, 3, 2, 3], [2, 2, 2, 3], [3, 2, 3, 2]], np.uint8)
    parts = connected_parts(labels)
    same = {int(part): np.unique(labels[parts == part]).tolist() for part in np.unique(parts)}
    assert sorted(same.values()) == [[2], [3], [3], [3]]  # parts of the 2s and 3s touch at corners
    assert parts[0, 0] == parts[0, 1]
    assert parts[0, 3] == parts[2, 2]


def test_ids_above_a_byte_survive_in_two_channels() -> None:
    labels = np.where(np.indices((40, 40)).sum(0) % 2, 3, 2).astype(np.uint8)
    labels[::2] = np.arange(40) % 2 + 4
    stacked = stack_labels(labels, None, np.zeros((40, 40, 3), np.uint8), (40, 40))
    ids = stacked[..., 1] + 256 * stacked[..., 2].astype(int)
    assert ids.max() > 255
    assert np.array_equal(ids, connected_parts(labels))


def test_resizing_mixes_no_ids(facades: Path) -> None:
    data = DataConfig(path=facades, layout="facades", direction="BtoA", load_side=72, crop=64)
    pairs = load_pictures(data)
    assert pairs
    for pair in pairs:
        assert pair.shape == (72, 72, 6)
        assert set(np.unique(pair[..., 0])) <= {1, 2, 3, 4, 6}


def test_the_direction_says_which_half_is_the_label_map(facades: Path, tmp_path: Path) -> None:
    path = sorted(facades.iterdir())[0]
    pair = cv2.imread(str(path))
    middle = pair.shape[1] // 2
    cv2.imwrite(str(tmp_path / path.name), np.concatenate([pair[:, middle:], pair[:, :middle]], 1))
    one = DataConfig(path=facades, layout="facades", direction="BtoA", load_side=64, crop=64, limit=1)
    other = DataConfig(path=tmp_path, layout="facades", direction="AtoB", load_side=64, crop=64)
    assert np.array_equal(load_pictures(one)[0], load_pictures(other)[0])


def test_validation_shows_whole_pairs(facades: Path) -> None:
    data = DataConfig(path=facades, layout="facades", direction="BtoA", load_side=72, crop=64, validation=facades)
    assert [pair.shape for pair in validation_pictures(data)] == [(64, 64, 6)] * len(list(facades.iterdir()))


def test_the_example_of_label_ids_is_the_example_of_colours() -> None:
    data = ROOT / "tests/data"
    with Image.open(data / "class_ids/facade.png") as ids, Image.open(data / "facade_labels.png") as colours:
        assert ids.mode == "P"
        assert np.array_equal(np.asarray(ids), facade_labels(np.asarray(colours.convert("RGB"))))
