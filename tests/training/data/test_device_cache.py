"""Crops are cut from decoded pictures on the device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from training.data.cuts import CropPositions, centre_crops
from training.data.device_cache import PictureCache
from training.errors import DataMissing

CPU = torch.device("cpu")
RNG = np.random.default_rng(1)
PICTURES = [RNG.integers(0, 256, (h, w, 3), np.uint8) for h, w in ((12, 20), (16, 9), (8, 8))]


@pytest.fixture
def cache() -> PictureCache:
    return PictureCache(PICTURES, CPU)


def cut(
    picture: int, offset: tuple[float, float], *, mirrored: bool = False, span: float | None = None
) -> CropPositions:
    spans = None if span is None else torch.tensor([span])
    return CropPositions(torch.tensor([picture]), torch.tensor([offset]), torch.tensor([mirrored]), spans)


def as_crop(picture: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(picture.copy()).permute(2, 0, 1).float() / 255


def test_cuts_are_the_pictures_own_pixels(cache: PictureCache) -> None:
    assert torch.equal(cache.crops(cut(0, (0, 0)), 8)[0], as_crop(PICTURES[0][:8, :8]))
    assert torch.equal(cache.crops(cut(1, (0.999, 0.999)), 8)[0], as_crop(PICTURES[1][8:16, 1:9]))
    assert torch.equal(cache.crops(cut(2, (0.7, 0.7)), 8)[0], as_crop(PICTURES[2]))


def test_a_mirrored_cut_has_left_and_right_exchanged(cache: PictureCache) -> None:
    assert torch.equal(cache.crops(cut(0, (0, 0), mirrored=True), 8)[0], as_crop(PICTURES[0][:8, 7::-1]))


def test_a_batch_mixes_pictures_of_different_sizes(cache: PictureCache) -> None:
    crops = cache.crops(centre_crops(0, 3, CPU), 8)
    assert crops.shape == (3, 3, 8, 8)
    assert torch.equal(crops[0], as_crop(PICTURES[0][2:10, 6:14]))
    assert torch.equal(crops[1], as_crop(PICTURES[1][4:12, 1:9]))


def test_a_span_of_one_interpolates_to_the_same_pixels(cache: PictureCache) -> None:
    plain, spanned = cache.crops(cut(0, (0, 0)), 8), cache.crops(cut(0, (0, 0), span=1.0), 8)
    assert torch.allclose(plain, spanned, atol=1e-6)


def test_a_span_shows_more_or_less_of_the_picture_between_its_corners(cache: PictureCache) -> None:
    wide = cache.crops(cut(0, (0, 0), span=1.5), 8)[0]
    assert torch.allclose(wide[:, 0, 0], as_crop(PICTURES[0])[:, 0, 0], atol=1e-6)
    assert torch.allclose(wide[:, 2, 2], as_crop(PICTURES[0])[:, 3, 3], atol=1e-6)
    halfway = cache.crops(cut(0, (0, 0), span=0.5), 8)[0]
    assert torch.allclose(halfway[:, 0, 1], as_crop(PICTURES[0])[:, 0, :2].mean(1), atol=1e-6)


def test_a_span_that_the_picture_cannot_fill_is_narrowed(cache: PictureCache) -> None:
    assert torch.allclose(cache.crops(cut(2, (0, 0), span=3.0), 8)[0], as_crop(PICTURES[2]), atol=1e-5)


def test_it_says_what_it_takes(cache: PictureCache) -> None:
    assert cache.nbytes == sum(picture.nbytes for picture in PICTURES)


def test_pictures_that_come_later_find_room() -> None:
    cache = PictureCache(PICTURES[:1], CPU, room_bytes=12 * 20 * 3 + 16 * 9 * 3)
    cache.append(PICTURES[1:2])
    assert cache.count == 2
    assert torch.equal(cache.crops(cut(1, (0.999, 0.999)), 8)[0], as_crop(PICTURES[1][8:16, 1:9]))
    with pytest.raises(DataMissing, match="capacity_gb"):
        cache.append(PICTURES[2:])
    assert cache.count == 2
