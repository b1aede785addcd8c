"""The kernels against the code that serves on a CPU, on random shapes and on photographs."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
from numpy.typing import NDArray
from PIL import Image

from engines.manifest import Manifest
from service.core.batch_rows import Crop
from service.core.picture_work import JpegPlanes
from service.core.pictures import Box, Picture, Size
from service.devices.pictures.steps import PictureOnGpu, PictureSteps, Plane, seam_scratch_bytes
from service.imaging.files.codec import decode
from service.imaging.postprocess import paste_fills
from service.imaging.preprocess import inpaint_sample
from service.imaging.seam import PasteArea, paste_areas, paste_part
from tests.fakes.jpeg_planes import planes_of

PHOTOGRAPH = Path("tests/data/dress.jpg")

Pixels = NDArray[np.uint8]
Compute = Callable[[Callable[[PictureSteps], Any]], None]


@pytest.fixture(scope="module")
def photograph() -> Pixels:
    with Image.open(PHOTOGRAPH) as image:
        return np.asarray(image.convert("RGB").resize((150, 131)))


@pytest.fixture
def manifest(fake_manifest: Callable[..., Manifest]) -> Manifest:
    return fake_manifest("photos", "inpaint")


def _address(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _random_mask(draw: random.Random, size: Size) -> NDArray[np.bool_]:
    """A mask with holes anywhere, at borders too, single pixels among them."""
    mask = np.zeros(size, np.bool_)
    for _ in range(draw.randint(1, 4)):
        top, left = draw.randrange(-5, size.height - 1), draw.randrange(-5, size.width - 1)
        height, width = draw.randint(1, size.height // 2), draw.randint(1, size.width // 2)
        mask[max(0, top) : max(1, top + height), max(0, left) : max(1, left + width)] = True
    return mask


def _random_crop(draw: random.Random, size: Size) -> Crop:
    """A crop with padding on any side, at the picture's scale or not."""
    height, width = draw.randint(3, size.height), draw.randint(3, size.width)
    top, left = draw.randint(0, size.height - height), draw.randint(0, size.width - width)
    scaled = Size(height, width)
    kind = draw.choice(("equal", "smaller", "larger", "half", "mixed"))
    if kind == "smaller":
        scaled = Size(draw.randint(1, height), draw.randint(1, width))
    elif kind == "larger":
        scaled = Size(draw.randint(height, 2 * height), draw.randint(width, 2 * width))
    elif kind == "half":
        scaled = Size(max(1, height // 2), max(1, width // 2))
        height, width = 2 * scaled.height, 2 * scaled.width
    elif kind == "mixed":
        scaled = Size(draw.randint(1, height), draw.randint(width, 2 * width))
    below, right_of = draw.randint(0, 5), draw.randint(0, 5)
    tile = Size(scaled.height + below + draw.randint(0, 5), scaled.width + right_of + draw.randint(0, 40))
    return Crop(Box(top, left, top + height, left + width), scaled, tile, None, below, right_of)


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_tile_is_the_cpus_within_one_level_and_its_mask_to_the_bit(
    compute: Compute, photograph: Pixels, manifest: Manifest, symmetric: bool
) -> None:
    draw, size = random.Random(int(symmetric)), Size(*photograph.shape[:2])
    if symmetric:
        manifest = manifest.model_copy(update={"size": manifest.size.model_copy(update={"padding": "symmetric"})})
    off = []
    for _ in range(25):
        mask, crop = _random_mask(draw, size), _random_crop(draw, size)
        expected = inpaint_sample(Picture(photograph), mask, crop, manifest).arrays
        tile, holes = np.full((*crop.tile, 3), 77, np.uint8), np.full(crop.tile, 77, np.uint8)

        def queue(
            steps: PictureSteps, crop: Crop = crop, tile: Any = tile, holes: Any = holes, mask: Any = mask
        ) -> None:
            picture = PictureOnGpu(_address(photograph), _address(mask), size)
            steps.cut(picture, crop, _address(tile), symmetric=symmetric)
            steps.cut_mask(picture, crop, _address(holes), symmetric=symmetric)

        compute(queue)
        np.testing.assert_array_equal(holes, expected["mask"])
        off.append(int(np.abs(tile.astype(np.int16) - expected["image"]).max()))
    assert max(off) <= 1, off


def _seam_within(area: PasteArea, part: Box) -> list[tuple[int, int]]:
    """Return the pixels of an area's seam and their nearest pixels, as indices in `part`."""
    down, right = area.part.top - part.top, area.part.left - part.left
    rows_and_columns = (np.divmod(indices, area.part.size.width) for indices in (area.seam, area.nearest))
    seam, nearest = ((rows + down) * part.size.width + columns + right for rows, columns in rows_and_columns)
    return list(zip(seam.tolist(), nearest.tolist(), strict=True))


def test_the_seam_and_the_pasted_fill_are_the_cpus(compute: Compute, photograph: Pixels) -> None:
    draw, size = random.Random(5), Size(*photograph.shape[:2])
    pasted = 0
    for _ in range(40):
        mask, crop = _random_mask(draw, size), _random_crop(draw, size)
        part, areas = paste_part(mask, crop), paste_areas(mask, crop)
        if part is None:
            continue
        fill = np.random.default_rng(draw.randrange(99)).integers(0, 256, (*crop.tile, 3), np.uint8)
        expected = paste_fills(Picture(photograph), mask, [crop], [fill]).pixels
        pixels, hole = photograph.copy(), np.ascontiguousarray(part.hole)
        scratch = np.zeros(seam_scratch_bytes(part.part.size), np.uint8)
        found: list[Any] = []

        def queue(steps: PictureSteps, one: Any = (mask, crop, part, fill, pixels, hole, scratch, found)) -> None:
            mask, crop, part, fill, pixels, hole, scratch, found = one
            picture = PictureOnGpu(_address(pixels), _address(mask), size)
            found.append(steps.find_seam(picture, part, _address(scratch)))
            steps.paste(picture, crop, part, _address(hole), _address(fill), found[0])

        compute(queue)
        count, start = hole.size, found[0].nearest - _address(scratch)
        nearest = scratch[start : start + 4 * count].view(np.int32)
        start = found[0].distance - _address(scratch)
        distance = scratch[start : start + 4 * count].view(np.uint32) / np.float32(65536)
        seam = np.flatnonzero((distance >= 0.5) & (distance <= part.seam) & (nearest >= 0))
        known = sorted(pair for area in areas for pair in _seam_within(area, part.part))
        assert list(zip(seam.tolist(), nearest[seam].tolist(), strict=True)) == known
        assert int(np.abs(pixels.astype(np.int16) - expected).max()) <= 1
        np.testing.assert_array_equal(pixels[~mask], photograph[~mask])
        pasted += 1
    assert pasted > 25


@pytest.mark.parametrize("subsampling", [0, 2])
@pytest.mark.parametrize("size", [(150, 131), (64, 64), (17, 33), (1, 1)])
def test_planes_become_the_pixels_of_libjpeg_turbo(
    compute: Compute, photograph: Pixels, subsampling: int, size: tuple[int, int]
) -> None:
    file = io.BytesIO()
    Image.fromarray(photograph).resize(size).save(file, "JPEG", quality=90, subsampling=subsampling)
    expected = simplejpeg.decode_jpeg(file.getvalue())
    factor = 1 if subsampling == 0 else 2
    planes = JpegPlanes(expected.shape[0], expected.shape[1], factor, factor)
    channels = planes_of(file.getvalue(), planes)
    pixels = np.zeros_like(expected)
    views = [Plane(_address(one), one.shape[1]) for one in channels]
    compute(lambda steps: steps.to_pixels(planes, views, 1, _address(pixels)))
    np.testing.assert_array_equal(pixels, expected)


def test_chroma_of_4_2_2_is_enlarged_as_by_libjpeg_turbo(compute: Compute) -> None:
    """Its planes are known where each block of chroma has one value, which survives quality 100."""
    draw = np.random.default_rng(2)
    luma = draw.integers(0, 256, (48, 96), np.uint8)
    blue, red = (draw.integers(60, 200, (6, 6), np.uint8).repeat(8, 0).repeat(8, 1) for _ in range(2))
    data = simplejpeg.encode_jpeg_yuv_planes(luma, blue, red, quality=100)
    assert simplejpeg.decode_jpeg_header(data)[3] == "422"
    expected = simplejpeg.decode_jpeg(data)
    stored = planes_of(data, JpegPlanes(48, 96, 1, 1))[0]  # luma is not enlarged
    pixels = np.zeros_like(expected)
    views = [Plane(_address(plane), plane.shape[1]) for plane in (stored, blue, red)]
    compute(lambda steps: steps.to_pixels(JpegPlanes(48, 96, 2, 1), views, 1, _address(pixels)))
    np.testing.assert_array_equal(pixels, expected)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_is_turned_upright_as_the_codec_turns_it(
    compute: Compute, photograph: Pixels, orientation: int
) -> None:
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    Image.fromarray(photograph[:40, :57]).save(file, "JPEG", quality=90, subsampling=0, exif=exif)
    expected = decode(file.getvalue(), max_pixels=10**6).pixels
    planes = JpegPlanes(40, 57, 1, 1)
    channels = planes_of(file.getvalue(), planes)
    pixels = np.zeros_like(expected)
    views = [Plane(_address(one), one.shape[1]) for one in channels]
    compute(lambda steps: steps.to_pixels(planes, views, orientation, _address(pixels)))
    np.testing.assert_array_equal(pixels, expected)
