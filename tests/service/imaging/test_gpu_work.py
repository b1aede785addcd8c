from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from engines.manifest import Manifest
from service.core.order import Order
from service.core.pictures import Size
from service.core.schemas import InpaintOptions
from service.imaging.crops import plan_crops
from service.imaging.files.header import Header, read_header
from service.imaging.gpu_work import may_be_on_gpu, plan_gpu_work
from service.imaging.seam import paste_part
from service.imaging.tasks import MaskPlan
from tests.service.imaging.files.test_hardware_jpeg import encoded


@pytest.fixture
def manifest(fake_manifest: Callable[..., Manifest]) -> Manifest:
    return fake_manifest("photos", "inpaint")


def plan_holes(header: Header, manifest: Manifest) -> MaskPlan:
    mask = np.zeros(header.size, np.bool_)
    mask[20:40, 30:50] = True
    return MaskPlan(mask, float(mask.mean()), plan_crops(mask, manifest.size, "whole"))


def test_a_sound_baseline_jpeg_is_planned_with_its_mask_and_parts(manifest: Manifest) -> None:
    data = encoded(subsampling=2)
    header = read_header(data, max_pixels=10**6)
    holes = plan_holes(header, manifest)
    planned = plan_gpu_work(data, header, lambda: holes, manifest)
    assert planned is not None
    work, plan = planned
    assert plan is holes
    assert (work.size, work.orientation, work.crops) == (Size(97, 125), 1, tuple(holes.crops))
    expected = [paste_part(holes.hole, crop) for crop in holes.crops]
    assert [part and (part.part, part.seam) for part in work.parts] == [
        one and (one.part, one.seam) for one in expected
    ]
    np.testing.assert_array_equal(work.mask, holes.hole)


@pytest.mark.parametrize(
    "data", [encoded(progressive=True), encoded("L"), encoded()[:-400]], ids=["progressive", "grey", "truncated"]
)
def test_what_the_cpu_must_decode_is_not_planned(manifest: Manifest, data: bytes) -> None:
    header = read_header(data, max_pixels=10**6)
    assert plan_gpu_work(data, header, partial(plan_holes, header, manifest), manifest) is None


def test_the_first_look_leaves_out_a_model_that_takes_no_mask(fake_manifest: Callable[..., Manifest]) -> None:
    order = Order("inpaint", {"image": b"", "mask": b""}, InpaintOptions())
    headers = {"image": read_header(encoded(), max_pixels=10**6)}
    assert not may_be_on_gpu(order, headers, fake_manifest("facades", "translate"))


def test_the_first_look_does_not_read_the_file(manifest: Manifest) -> None:
    header = read_header(encoded(), max_pixels=10**6)
    order = Order("inpaint", {"image": b"", "mask": b""}, InpaintOptions())
    assert may_be_on_gpu(order, {"image": header}, manifest)


@pytest.mark.parametrize("data", [encoded(progressive=True), encoded("L")], ids=["progressive", "grey"])
def test_the_first_look_leaves_out_what_the_header_tells(manifest: Manifest, data: bytes) -> None:
    order = Order("inpaint", {"image": data, "mask": b""}, InpaintOptions())
    assert not may_be_on_gpu(order, {"image": read_header(data, max_pixels=10**6)}, manifest)
