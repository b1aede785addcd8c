"""The files of a request: each header is parsed once, however many steps need it."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, get_args

import numpy as np
import pytest

from engines.manifest import Manifest, Task
from service.core.call import Timings
from service.core.errors import InvalidImage, InvalidOption, TooLarge, UnsupportedType
from service.core.order import Order
from service.core.pictures import ImageFormat, Size
from service.core.schemas import OPTIONS, GenerateOptions, InpaintOptions, TranslateOptions
from service.imaging import mask_plan, tasks
from service.imaging.crops import plan_whole
from service.imaging.files import codec
from service.imaging.files.decode_cost import decoded_bytes
from service.imaging.files.header import Header, read_header
from service.imaging.pasting.areas import PasteArea, paste_areas
from service.imaging.pool.parallel_steps import HelperThreads, StepRunner, run_sequentially
from service.imaging.several_results import bytes_of_rows
from service.imaging.tasks import DecodingCost, PreparedRequest
from service.imaging.texture.windows import BYTES_PER_PIXEL, MAX_WINDOW_PIXELS
from tests.serving import image_files as files
from tests.serving.tensor_specs import instance, label, output, reference

LIMIT = 1_000_000
T = TypeVar("T")


def inpaint(photo: bytes, mask: bytes) -> Order:
    return Order("inpaint", {"image": photo, "mask": mask}, InpaintOptions())


def prepare_inpaint(order: Order, manifest: Manifest, run_steps: StepRunner = run_sequentially) -> PreparedRequest:
    headers = tasks.read_headers(order.files, LIMIT)
    return tasks.prepare_inpaint(order, headers, LIMIT, manifest, Timings(), run_steps)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[bytes]:
    """The number of times that each file's header was read."""
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
    order = inpaint(photo, mask)
    headers = tasks.read_headers(order.files, LIMIT)
    weight = tasks.estimate_cost(order.files, headers)
    prepared = tasks.prepare_inpaint(order, headers, LIMIT, fake_manifest("photos", "inpaint"), Timings())
    assert weight.effort >= prepared.size.height * prepared.size.width
    assert weight.decoded_bytes == sum(decoded_bytes(read_header(f, max_pixels=LIMIT), len(f)) for f in (photo, mask))
    assert reads == {photo: 1, mask: 1}


@pytest.mark.parametrize(
    ("task", "header", "channels", "bytes_a_pixel"),
    [
        ("translate", Header("jpeg", Size(30, 20)), 3, 3),
        ("translate", Header("png", Size(30, 20), bits=16, alpha=True), 3, 4),
        ("translate", Header("jpeg", Size(30, 20)), 2, 3),
        ("translate", Header("jpeg", Size(30, 20)), 1, 1),
        ("inpaint", Header("png", Size(30, 20), bits=16), 3, 6),
        ("inpaint", Header("png", Size(30, 20), colour="grey", alpha=True), 3, 2),
        ("inpaint", Header("png", Size(30, 20), colour="palette", transparent=True), 3, 4),
    ],
)
def test_each_result_beyond_the_first_takes_memory(
    task: Task, header: Header, channels: int, bytes_a_pixel: int, fake_manifest: Callable[..., Manifest]
) -> None:
    manifest = fake_manifest("drawing", task, output=output(channels=channels))
    for samples, beyond in ((1, 0), (8, 7)):
        order = Order(task, {"image": b""}, OPTIONS[task].model_validate({"samples": samples}))
        cost = DecodingCost(9, 1000).with_results(order, {"image": header}, manifest)
        rows = bytes_of_rows(plan_whole(header.size, manifest.size).tile, manifest, samples)
        assert cost == DecodingCost(9, 1000 + beyond * 30 * 20 * bytes_a_pixel + rows)


@pytest.mark.parametrize(("side", "pixels"), [(30, 900), (4000, MAX_WINDOW_PIXELS)])
def test_copied_texture_takes_memory_for_each_result_up_to_that_of_the_largest_window(
    side: int, pixels: int, fake_manifest: Callable[..., Manifest]
) -> None:
    manifest, headers = fake_manifest("drawing", "inpaint"), {"image": Header("jpeg", Size(side, side))}
    plain, textured = (
        DecodingCost().with_results(
            Order("inpaint", {"image": b""}, InpaintOptions(samples=2, texture=texture)), headers, manifest
        )
        for texture in ("none", "copied")
    )
    assert textured.decoded_bytes - plain.decoded_bytes == 2 * pixels * BYTES_PER_PIXEL


def test_a_generated_picture_needs_no_memory_for_decoding(
    fake_manifest: Callable[..., Manifest],
) -> None:
    order = Order("generate", {}, GenerateOptions(count=8))
    assert DecodingCost().with_results(order, {}, fake_manifest("photos", "inpaint")) == DecodingCost()


def test_a_header_that_cannot_be_used_is_refused_before_anything_is_decoded() -> None:
    with pytest.raises(TooLarge):
        tasks.read_headers({"image": files.png(np.zeros((1001, 1000, 1), np.uint8))}, LIMIT)
    with pytest.raises(InvalidImage, match="empty"):
        tasks.read_headers({"mask": b""}, LIMIT)


@pytest.mark.parametrize("part", ["image", "mask", "instance", "reference"])
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (files.saved(np.zeros((8, 8, 3), np.uint8), "GIF"), "unsupported_type"),
        (files.png(np.zeros((1001, 1000, 1), np.uint8)), "too_many_pixels"),
        (files.png(np.zeros((64, 64, 1), np.uint8))[:-40], "invalid_image"),
        (files.png(np.zeros((64, 64, 1), np.uint8)).replace(b"IEND", b"iEND"), "invalid_image"),
    ],
    ids=["GIF", "too large", "truncated", "damaged"],
)
def test_the_file_that_cannot_be_used_is_named_because_a_request_has_several(
    part: str, data: bytes, code: str, fake_manifest: Callable[..., Manifest]
) -> None:
    of_task: dict[Task, tuple[str, ...]] = {
        "inpaint": ("image", "mask"),
        "translate": ("image", "instance", "reference"),
    }
    task: Task = "inpaint" if part in of_task["inpaint"] else "translate"
    inputs = {} if task == "inpaint" else {"inputs": [label(35), instance(), reference()]}
    good = files.png(np.zeros((64, 64, 1), np.uint8))
    order = Order(task, {**dict.fromkeys(of_task[task], good), part: data}, OPTIONS[task]())

    def prepare() -> PreparedRequest:
        headers, manifest = tasks.read_headers(order.files, LIMIT), fake_manifest("any", task, **inputs)
        return tasks.PREPARE[task](order, headers, LIMIT, manifest, Timings(), run_sequentially)

    with pytest.raises((InvalidImage, UnsupportedType, TooLarge), match=f"^`{part}`: ") as refusal:
        prepare()
    assert refusal.value.code == code


def test_every_task_is_in_the_table_with_options_of_its_own() -> None:
    assert set(tasks.PREPARE) == set(OPTIONS) == set(get_args(Task))


def test_options_of_another_task_raise_an_error(
    photo: bytes, mask: bytes, fake_manifest: Callable[..., Manifest]
) -> None:
    order = replace(inpaint(photo, mask), options=GenerateOptions())
    with pytest.raises(TypeError, match="has InpaintOptions, not GenerateOptions"):
        prepare_inpaint(order, fake_manifest("photos", "inpaint"))


def test_pictures_are_the_same_whether_mask_and_image_are_decoded_in_parallel_or_not(
    photo: bytes, mask: bytes, fake_manifest: Callable[..., Manifest]
) -> None:
    helpers, manifest = HelperThreads(1, lambda: 1), fake_manifest("photos", "inpaint")
    made = []
    for run_steps in (run_sequentially, helpers.run_with_helpers):
        prepared = prepare_inpaint(inpaint(photo, mask), manifest, run_steps)
        tiles = [np.full_like(row.arrays["image"], 200) for row in prepared.rows]
        made.append(
            (prepared.coverage, [row.arrays["mask"].tobytes() for row in prepared.rows], prepared.finish(tiles))
        )
    helpers.close()
    (coverage, masks, picture), (its_coverage, its_masks, its_picture) = made
    assert (coverage, masks) == (its_coverage, its_masks)
    assert np.array_equal(picture.pixels, its_picture.pixels)


@pytest.mark.parametrize("ahead", [False, True])
def test_paste_areas_are_computed_once_and_only_after_preparation(
    ahead: bool, photo: bytes, mask: bytes, fake_manifest: Callable[..., Manifest], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []

    def counting(*args: Any) -> list[PasteArea]:
        found.append(1)
        return paste_areas(*args)

    monkeypatch.setattr(mask_plan, "paste_areas", counting)
    order = replace(inpaint(photo, mask), options=InpaintOptions(samples=2))
    prepared = prepare_inpaint(order, fake_manifest("photos", "inpaint"))
    assert not found
    if ahead:
        deque(prepared.work_ahead())
        assert found
    tiles = [np.full_like(row.arrays["image"], 200) for row in prepared.rows]
    pictures = [prepared.finish(tiles).pixels for _ in range(2)]
    assert len(found) == len(prepared.rows)
    assert np.array_equal(*pictures)


@pytest.mark.parametrize("file_format", ["jpeg", "png", "webp"])
def test_a_picture_is_the_same_file_if_parts_of_it_were_encoded_ahead(
    file_format: ImageFormat, fake_manifest: Callable[..., Manifest]
) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (512, 512, 3), np.uint8)
    hole = np.zeros((512, 512, 1), np.uint8)
    hole[300:340, 200:260] = 255
    order = Order("inpaint", {"image": files.png(pixels), "mask": files.png(hole)}, InpaintOptions(format=file_format))
    made = []
    for ahead in (False, True):
        prepared = prepare_inpaint(order, fake_manifest("photos", "inpaint"))
        if ahead:
            deque(prepared.work_ahead())
        strips = prepared.strips()
        assert all(strip.done is ahead for strip in strips.values())
        picture = prepared.finish([np.full_like(row.arrays["image"], 200) for row in prepared.rows])
        made.append(codec.encode(picture, file_format, 90, ahead=strips))
    assert made[0] == made[1] == codec.encode(picture, file_format, 90)


def test_the_files_of_a_translation_are_decoded_in_parallel_to_the_same_rows(
    photo: bytes, fake_manifest: Callable[..., Manifest]
) -> None:
    manifest = fake_manifest("dressed", "translate", inputs=[label(35), instance(), reference()])
    side = codec.decode(photo, max_pixels=LIMIT).size
    ids = np.arange(side.height * side.width, dtype=np.uint16).reshape(*side, 1)
    parts = {"image": files.png((ids % 35).astype(np.uint8)), "instance": files.png(ids), "reference": photo}
    order = Order("translate", parts, TranslateOptions())
    together = threading.Barrier(3)

    def all_at_once(pieces: Sequence[Callable[[], T]]) -> list[T]:
        def meet(piece: Callable[[], T]) -> T:
            together.wait(10)
            return piece()

        return helpers.run_with_helpers([partial(meet, piece) for piece in pieces])

    headers, helpers = tasks.read_headers(order.files, LIMIT), HelperThreads(2, lambda: 2)
    in_turn, at_once = (
        tasks.prepare_translate(order, headers, LIMIT, manifest, Timings(), way).rows[0].arrays
        for way in (run_sequentially, all_at_once)
    )
    helpers.close()
    assert sorted(in_turn) == ["instance", "label", "reference"]
    assert all(np.array_equal(in_turn[name], at_once[name]) for name in in_turn)


def test_several_results_are_pictures_of_their_own(
    photo: bytes, mask: bytes, fake_manifest: Callable[..., Manifest]
) -> None:
    order = replace(inpaint(photo, mask), options=InpaintOptions(samples=2))
    prepared = prepare_inpaint(order, fake_manifest("photos", "inpaint"))
    dark, bright = ([np.full_like(row.arrays["image"], level) for row in prepared.rows] for level in (0, 255))
    first = prepared.finish(dark)
    kept = first.pixels.copy()
    assert not np.array_equal(prepared.finish(bright).pixels, kept)
    assert np.array_equal(first.pixels, kept)


def test_a_mask_of_zeros_and_ones_is_refused_with_its_brightest_value(
    photo: bytes, mask: bytes, fake_manifest: Callable[..., Manifest]
) -> None:
    ones = files.png(codec.decode_mask(mask, "white", max_pixels=LIMIT).astype(np.uint8)[:, :, None])
    with pytest.raises(InvalidOption, match=r"1 of 255, and holes must be at least 128; multiply it by 255") as refusal:
        prepare_inpaint(inpaint(photo, ones), fake_manifest("photos", "inpaint"))
    assert refusal.value.code == "mask_empty"


def test_of_two_broken_files_the_error_names_the_image(fake_manifest: Callable[..., Manifest]) -> None:
    helpers = HelperThreads(1, lambda: 1)
    broken = files.png(np.zeros((64, 64, 3), np.uint8))[:-40]
    no_mask = files.png(np.zeros((64, 64, 1), np.uint8)).replace(b"IDAT", b"iDAT")
    manifest = fake_manifest("photos", "inpaint")
    for run_steps in (run_sequentially, helpers.run_with_helpers):
        with pytest.raises(InvalidImage, match="PNG is"):
            prepare_inpaint(inpaint(broken, no_mask), manifest, run_steps)
    helpers.close()
