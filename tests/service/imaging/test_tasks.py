"""The files of a request: their headers are read once, whoever asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from engines.manifest import Manifest
from service.core.call import Timings
from service.core.errors import InvalidImage, InvalidOption, TooLarge
from service.core.schemas import InpaintOptions
from service.imaging import tasks
from service.imaging.files import codec
from service.imaging.files.decode_cost import decoded_bytes
from service.imaging.files.header import Header, read_header
from service.imaging.pool.parallel_steps import Helpers, in_turn
from service.imaging.tasks import Uploads
from tests.serving import image_files as files

LIMIT = 1_000_000


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[bytes]:
    """How often each file's header was read."""
    counted: Counter[bytes] = Counter()

    def counting(data: bytes, *, max_pixels: int) -> Header:
        counted[data] += 1
        return read_header(data, max_pixels=max_pixels)

    for module in (tasks, codec):
        monkeypatch.setattr(module, "read_header", counting)
    return counted


def test_a_header_is_read_once_for_the_budget_the_plan_and_the_decoder(
    reads: Counter[bytes], photo: bytes, mask: bytes, fake_manifest: Callable[..., Manifest]
) -> None:
    uploads = Uploads(photo, mask)
    weight = tasks.weigh(uploads, LIMIT)
    prepared = tasks.prepare_inpaint(uploads, InpaintOptions(), LIMIT, fake_manifest("photos", "inpaint"), Timings())
    assert weight.effort >= prepared.size.height * prepared.size.width
    assert weight.decoded_bytes == sum(decoded_bytes(read_header(f, max_pixels=LIMIT), len(f)) for f in (photo, mask))
    assert reads == {photo: 1, mask: 1}


def test_a_header_that_cannot_be_used_is_refused_each_time(reads: Counter[bytes]) -> None:
    uploads = Uploads(files.png(np.zeros((1001, 1000, 1), np.uint8)))
    for _ in range(2):
        with pytest.raises(TooLarge):
            tasks.weigh(uploads, LIMIT)
    with pytest.raises(InvalidImage, match="empty"):
        uploads.header("mask", LIMIT)


def test_pictures_are_the_same_whether_mask_and_image_are_read_side_by_side_or_in_turn(
    photo: bytes, mask: bytes, fake_manifest: Callable[..., Manifest]
) -> None:
    helpers, manifest = Helpers(1), fake_manifest("photos", "inpaint")
    made = []
    for side_by_side in (in_turn, lambda pieces: helpers.share(pieces, 1)):
        prepared = tasks.prepare_inpaint(
            Uploads(photo, mask), InpaintOptions(), LIMIT, manifest, Timings(), side_by_side
        )
        tiles = [np.full_like(row.arrays["image"], 200) for row in prepared.rows]
        made.append(
            (prepared.coverage, [row.arrays["mask"].tobytes() for row in prepared.rows], prepared.finish(tiles))
        )
    helpers.close()
    (coverage, masks, picture), (its_coverage, its_masks, its_picture) = made
    assert (coverage, masks) == (its_coverage, its_masks)
    assert np.array_equal(picture.pixels, its_picture.pixels)


def test_a_mask_of_zeros_and_ones_is_refused_with_its_brightest_value(
    photo: bytes, mask: bytes, fake_manifest: Callable[..., Manifest]
) -> None:
    ones = files.png(codec.decode_mask(mask, "white", max_pixels=LIMIT).astype(np.uint8)[:, :, None])
    with pytest.raises(InvalidOption, match=r"1 of 255, and holes must be at least 128; multiply it by 255") as refusal:
        tasks.prepare_inpaint(
            Uploads(photo, ones), InpaintOptions(), LIMIT, fake_manifest("photos", "inpaint"), Timings()
        )
    assert refusal.value.code == "mask_empty"


def test_of_two_broken_files_the_image_is_complained_about(fake_manifest: Callable[..., Manifest]) -> None:
    helpers = Helpers(1)
    broken = files.png(np.zeros((64, 64, 3), np.uint8))[:-40]
    with pytest.raises(InvalidImage, match="PNG is"):
        tasks.prepare_inpaint(
            Uploads(broken, b"no picture"),
            InpaintOptions(),
            LIMIT,
            fake_manifest("photos", "inpaint"),
            Timings(),
            lambda pieces: helpers.share(pieces, 1),
        )
    helpers.close()
