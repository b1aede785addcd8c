"""The areas into which fills are pasted: boxes of holes, with the same seam in many boxes as in one."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from service.core.batch_rows import Crop
from service.core.pictures import Box, Picture, Size
from service.imaging.pasting.areas import PasteArea, areas_of_part, paste_areas, paste_part
from service.imaging.pasting.kernel import PastingKernel, installed_kernel
from service.imaging.postprocess import paste_fills

SIDE = 512
WHOLE = Crop(Box(0, 0, SIDE, SIDE), Size(SIDE, SIDE), Size(SIDE, SIDE))
HALVED = Crop(Box(0, 0, SIDE, SIDE), Size(SIDE // 2, SIDE // 2), Size(SIDE // 2, SIDE // 2))


def holes(*boxes: Box) -> NDArray[np.bool_]:
    mask = np.zeros((SIDE, SIDE), np.bool_)
    for box in boxes:
        mask[box.top : box.bottom, box.left : box.right] = True
    return mask


def some_holes(random: np.random.Generator) -> NDArray[np.bool_]:
    """Return a mask with ellipses, thin lines and dots, some at the border."""
    mask = np.zeros((SIDE, SIDE), np.uint8)

    def within(least: int, most: int) -> tuple[int, int]:
        across, down = random.integers(least, most, 2).tolist()
        return across, down

    for _ in range(random.integers(1, 5)):
        cv2.ellipse(mask, within(-20, SIDE + 20), within(1, 60), float(random.integers(180)), 0, 360, 1, -1)
    for _ in range(random.integers(0, 3)):
        cv2.line(mask, within(0, SIDE), within(0, SIDE), 1, int(random.integers(1, 9)))
    for _ in range(random.integers(0, 9)):
        mask[within(0, SIDE)] = 1
    return mask.astype(np.bool_)


def seam_of_one_box(mask: NDArray[np.bool_], crop: Crop) -> list[tuple[int, int, float]]:
    """Return each seam pixel, the nearest known pixel and the weight, from one distance transform of the whole part."""
    found = paste_part(mask, crop)
    assert found is not None
    part = found.part
    inside = np.ascontiguousarray(mask[part.top : part.bottom, part.left : part.right]).view(np.uint8)
    distance, labels = cv2.distanceTransformWithLabels(inside, cv2.DIST_L2, 3, labelType=cv2.DIST_LABEL_PIXEL)
    origin = np.array((part.top, part.left))
    outside = np.argwhere(inside == 0) + origin
    pixels = np.argwhere((distance >= 0.5) & (distance <= found.seam) & found.hole)
    at = tuple(pixels.T)
    return triples(pixels + origin, outside[labels[at] - 1], distance[at] / (found.seam + 1))


def areas_of(mask: NDArray[np.bool_], crop: Crop = WHOLE, kernel: PastingKernel | None = None) -> list[PasteArea]:
    """Return the areas of a mask, by default computed without compiled code."""
    found = paste_part(mask, crop)
    assert found is not None
    return areas_of_part(mask, found, kernel)


def seam_of_areas(areas: list[PasteArea]) -> list[tuple[int, int, float]]:
    """Return the same as `seam_of_one_box`, but from areas."""
    seams = []
    for area in areas:
        origin, width = np.array((area.part.top, area.part.left)), area.part.size.width
        pixels, nearest = (np.stack(np.divmod(flat, width), axis=1) + origin for flat in area.seam[:2])
        seams += triples(pixels, nearest, area.seam.weights)
    return sorted(seams)


def triples(pixels: Any, nearest: Any, weights: Any) -> list[tuple[int, int, float]]:
    flat = (found[:, 0] * SIDE + found[:, 1] for found in (pixels, nearest))
    return sorted(zip(*(found.tolist() for found in flat), weights.tolist(), strict=True))


def test_holes_far_apart_get_a_box_each_and_near_ones_share_it() -> None:
    far, near = Box(20, 20, 100, 100), Box(400, 400, 420, 420)
    parts = [area.part for area in areas_of(holes(far, near, Box(400, 428, 420, 448)))]
    assert len(parts) == 2
    assert all(any(part.joined(hole) == part for part in parts) for hole in (far, near, Box(400, 428, 420, 448)))


def test_boxes_do_not_overlap_and_hold_every_hole_with_the_seams_margin() -> None:
    random = np.random.default_rng(3)
    counts = set()
    for crop in (WHOLE, HALVED) * 40:
        mask, owned = some_holes(random), np.zeros((SIDE, SIDE), np.int64)
        if not mask.any():
            continue
        areas = areas_of(mask, crop)
        for area in areas:
            part = area.part
            owned[part.top : part.bottom, part.left : part.right] += 1
            assert np.array_equal(area.hole, mask[part.top : part.bottom, part.left : part.right])
        near = cv2.dilate(mask.view(np.uint8), np.ones((9, 9), np.uint8)) > 0
        assert owned.max() == 1
        assert owned[near].min() == 1
        counts.add(len(areas))
    assert {1, 2, 3} <= counts


@pytest.mark.parametrize("crop", [WHOLE, HALVED], ids=["whole", "scaled down"])
def test_the_seam_in_several_boxes_is_that_of_one(crop: Crop) -> None:
    random, boxes = np.random.default_rng(7), 0
    for _ in range(60):
        mask = some_holes(random)
        if mask.any():
            areas = areas_of(mask, crop)
            boxes = max(boxes, len(areas))
            assert seam_of_areas(areas) == seam_of_one_box(mask, crop)
    assert boxes > 2


@pytest.mark.parametrize("crop", [WHOLE, HALVED], ids=["whole", "scaled down"])
def test_compiled_code_finds_the_same_seam_in_one_area(crop: Crop, kernel: PastingKernel) -> None:
    random = np.random.default_rng(8)
    for _ in range(60):
        mask = some_holes(random)
        if mask.any():
            (area,) = areas_of(mask, crop, kernel)
            assert seam_of_areas([area]) == seam_of_one_box(mask, crop)


def test_compiled_code_gets_boxes_where_its_distances_would_not_fit_the_caches(kernel: PastingKernel) -> None:
    side = 2100
    mask = np.zeros((side, side), np.bool_)
    mask[20:100, 20:100] = mask[2000:2080, 2000:2080] = True
    whole = Crop(Box(0, 0, side, side), Size(side, side), Size(side, side))
    compiled, expected = areas_of(mask, whole, kernel), areas_of(mask, whole)
    assert [area.part for area in compiled] == [area.part for area in expected]
    assert len(compiled) == 2
    for ours, theirs in zip(compiled, expected, strict=True):
        assert all(np.array_equal(*arrays) for arrays in zip(ours.seam, theirs.seam, strict=True))


def test_compiled_code_is_used_where_it_is_installed() -> None:
    mask = holes(Box(20, 20, 100, 100), Box(400, 400, 420, 420))
    assert len(paste_areas(mask, WHOLE)) == (1 if installed_kernel() else 2)


def test_speckles_everywhere_are_searched_in_one_box() -> None:
    mask = np.zeros((SIDE, SIDE), np.bool_)
    mask[::40, ::40] = True
    assert len(areas_of(mask)) == 1


def test_a_picture_that_is_not_needed_any_more_is_filled_itself() -> None:
    mask, pixels = holes(Box(20, 20, 100, 100)), np.full((SIDE, SIDE, 3), 50, np.uint8)
    tile = np.full((SIDE, SIDE, 3), 99, np.uint8)
    copied = paste_fills(Picture(pixels), mask, [WHOLE], [tile])
    assert pixels.max() == 50
    filled = paste_fills(Picture(pixels), mask, [WHOLE], [tile], in_place=True)
    assert filled.pixels is pixels
    assert np.array_equal(filled.pixels, copied.pixels)


def test_a_picture_that_cannot_be_written_to_is_copied() -> None:
    mask, pixels = holes(Box(20, 20, 100, 100)), np.full((SIDE, SIDE, 3), 50, np.uint8)
    pixels.flags.writeable = False
    tile = np.full((SIDE, SIDE, 3), 99, np.uint8)
    assert paste_fills(Picture(pixels), mask, [WHOLE], [tile], in_place=True).pixels.max() == 99
