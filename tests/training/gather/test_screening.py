import io

import cv2
import numpy as np
import pytest
from PIL import Image

from training.gather.recipe import Recipe
from training.gather.screening import contrast, crops_for_fingerprints, decode, fingerprint, resize, screen


def _recipe(**options):
    return Recipe(source=[{"name": "some", "path": "x", "licence": "CC0"}], **options)


def _scene(height, width, seed=0):
    """Make smooth random shapes, mostly low frequencies as in a photograph."""
    noise = np.random.default_rng(seed).uniform(0, 255, (8, 8, 3)).astype(np.float32)
    return np.clip(cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC), 0, 255).astype(np.uint8)


def _encoded(pixels, kind="JPEG", **options):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def _bits(one, other):
    return bin(one ^ other).count("1")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "broken", id="nothing"),
        pytest.param(b"<html>404</html>", "broken", id="not a picture"),
        pytest.param(_encoded(_scene(300, 300))[:-4000], "broken", id="cut short"),
        pytest.param(_encoded(_scene(223, 400)), "small", id="small"),
        pytest.param(_encoded(np.full((300, 300, 3), 90, np.uint8)), "flat", id="flat"),
    ],
)
def test_what_is_not_worth_training_on_is_left_out_with_its_reason(data, reason):
    assert screen(data, _recipe(), crops=0) == reason


@pytest.mark.parametrize(
    ("size", "kept"),
    [
        pytest.param((600, 800), (288, 384), id="made small"),
        pytest.param((270, 400), (270, 400), id="as it is"),
        pytest.param((224, 240), (256, 274), id="a little enlarged"),
        pytest.param((400, 2000), (288, 432), id="the middle of a panorama"),
    ],
)
def test_shorter_side_comes_between_min_side_and_max_side(size, kept):
    (only,) = screen(_encoded(_scene(*size)), _recipe(), crops=0)  # type: ignore[str-unpack]
    assert only.pixels.shape == (*kept, 3)


def test_large_picture_gives_its_liveliest_tiles_beside_the_whole():
    pixels = _scene(1200, 1200)
    pixels[:, :600] = 128
    whole, *tiles = screen(_encoded(pixels, quality=95), _recipe(), crops=3)  # type: ignore[str-unpack]
    assert whole.pixels.shape == (288, 288, 3)
    assert [tile.pixels.shape for tile in tiles] == [(288, 288, 3)] * 3
    assert all(contrast(tile.pixels) >= 12 for tile in tiles)
    assert contrast(tiles[0].pixels) >= contrast(tiles[1].pixels) >= contrast(tiles[2].pixels)


def test_picture_of_ordinary_size_gives_no_tiles():
    assert len(screen(_encoded(_scene(500, 700)), _recipe(), crops=8)) == 1


def test_picture_is_turned_upright_and_keeps_its_colours():
    pixels = np.zeros((64, 96, 3), np.uint8)
    pixels[:, :48, 0] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # to be rotated by 90° to the right
    upright = decode(_encoded(pixels, quality=95, exif=exif), wanted=288)
    assert upright.shape == (96, 64, 3)
    assert upright[10, 32, 0] > 240
    assert upright[10, 32, 2] < 15
    assert upright[90, 32, 0] < 15


def test_grey_and_transparent_pictures_become_rgb():
    for mode in ("L", "RGBA", "P"):
        file = io.BytesIO()
        Image.fromarray(_scene(40, 40)).convert(mode).save(file, "PNG")
        assert decode(file.getvalue(), wanted=288).shape == (40, 40, 3)


def test_sixteen_bits_are_scaled_to_eight():
    file = io.BytesIO()
    Image.fromarray(_scene(40, 40)[..., 0].astype(np.uint16) * 257).save(file, "PNG")
    assert (decode(file.getvalue(), wanted=288) == _scene(40, 40)[..., :1]).all()


def test_fingerprint_survives_scale_and_compression_and_tells_pictures_apart():
    pixels = _scene(600, 800)
    again = decode(_encoded(resize(pixels, 100, 150), quality=60), wanted=288)
    assert _bits(fingerprint(pixels), fingerprint(again)) <= 4
    others = [fingerprint(_scene(600, 800, seed)) for seed in range(1, 20)]
    assert min(_bits(fingerprint(pixels), other) for other in others) > 10


def test_views_find_a_picture_that_was_cut_square_and_mirrored():
    pixels = _scene(320, 480)
    cut = fingerprint(resize(np.ascontiguousarray(pixels[:, 115:435, :][:, ::-1]), 256, 256))
    assert _bits(fingerprint(pixels), cut) > 12
    assert min(_bits(fingerprint(view), cut) for view in crops_for_fingerprints(pixels)) <= 6
