"""Plan of the work that a GPU does on a picture, from its file and the plan for its mask. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from engines.manifest import Manifest
from service.core.call import Timings
from service.core.order import Order
from service.core.picture_work import PictureWork
from service.core.pictures import Picture
from service.imaging.files import codec
from service.imaging.files.decode_cost import LARGE_PIXELS
from service.imaging.files.hardware_jpeg import hardware_planes, is_sound, may_be_for_hardware
from service.imaging.files.header import Header
from service.imaging.files.icc import read_profile
from service.imaging.pool.parallel_steps import StepRunner, run_one_by_one
from service.imaging.seam import paste_part
from service.imaging.tasks import Headers, MaskPlan, PreparedRequest, Tile, plan_mask, timed_stage


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """A request that a GPU computes from the file to the finished picture, which is its one tile."""

    work: PictureWork
    prepared: PreparedRequest


def may_be_on_gpu(order: Order, headers: Headers, manifest: Manifest) -> bool:
    """Whether a GPU may compute an order, as far as its headers tell; quick, for the event loop."""
    header = headers.get("image")
    if order.task != "inpaint" or header is None or not _suits(manifest):
        return False
    if header.size.height * header.size.width >= LARGE_PIXELS:  # its memory would be that of hundreds of others
        return False
    return may_be_for_hardware(header)


def prepare_on_gpu(
    order: Order, headers: Headers, max_pixels: int, manifest: Manifest, timings: Timings, side_by_side: StepRunner
) -> GpuRequest | None:
    """Prepare an inpainting order for a GPU; None where the CPU must decode the picture, or refuse it.

    Raises:
        UnsupportedType, TooLarge, InvalidImage, SizesDiffer, InvalidOption: the mask cannot be used, or the format
            cannot hold the result.
    """
    data, header = order.files["image"], headers["image"]
    codec.check_encodable(header.size, order.format)
    with timed_stage(timings, "decode"):
        holes = partial(plan_mask, order, headers, max_pixels, manifest)
        planned = plan_gpu_work(data, header, holes, manifest, side_by_side)
        if planned is None:
            return None
        work, plan = planned
        icc = read_profile(data, header.format, 3) if header.profile else None
    return GpuRequest(work, PreparedRequest([], work.size, plan.coverage, partial(_finished, icc)))


def plan_gpu_work(
    data: bytes,
    header: Header,
    plan_holes: Callable[[], MaskPlan],
    manifest: Manifest,
    side_by_side: StepRunner = run_one_by_one,
) -> tuple[PictureWork, MaskPlan] | None:
    """Plan the work on a picture that is filled; None where the GPU would not give what the CPU gives.

    Args:
        data: the picture's file.
        header: its header.
        plan_holes: returns the plan for the picture's mask; runs beside the check of the file.
        manifest: that of a model for which `may_be_on_gpu` holds.
        side_by_side: runs the two.
    """
    planes = hardware_planes(data, header)
    if planes is None:
        return None
    pieces: list[Callable[[], Any]] = [partial(is_sound, data), plan_holes]
    sound, plan = side_by_side(pieces)
    if not sound:
        return None
    work = PictureWork(
        data,
        planes,
        header.orientation,
        np.ascontiguousarray(plan.hole).view(np.uint8),
        tuple(plan.crops),
        tuple(paste_part(plan.hole, crop) for crop in plan.crops),
        manifest.size.padding == "symmetric",
    )
    return work, plan


def _suits(manifest: Manifest) -> bool:
    takes = {spec.name for spec in manifest.inputs}
    return takes == {"image", "mask"} and manifest.image_channels == 3 == manifest.output_channels


def _finished(icc: bytes | None, tiles: Sequence[Tile]) -> Picture:
    return Picture(tiles[0], None, icc)
