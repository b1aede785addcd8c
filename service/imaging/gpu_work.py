"""Plan of the work that a GPU does on a picture, from its file and the plan for its mask. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engines.manifest import Manifest
from service.core.batch_rows import Crop
from service.core.picture_work import PictureWork
from service.core.pictures import Bool2D, Size
from service.imaging.files.hardware_jpeg import hardware_planes, is_sound
from service.imaging.files.header import Header
from service.imaging.postprocess import paste_part


def plan_gpu_work(
    data: bytes, header: Header, mask: Bool2D, crops: Sequence[Crop], manifest: Manifest
) -> PictureWork | None:
    """Plan the work on a picture that is filled, if the GPU would give what the CPU gives.

    Args:
        data: the picture's file.
        header: its header.
        mask: H×W of the upright picture, True = fill.
        crops: planned for the mask.
        manifest: the model's; it must take RGB and a mask, and give RGB.
    """
    suits = manifest.image_channels == 3 == manifest.output_channels and manifest.input("mask") is not None
    planes = hardware_planes(data, header) if suits else None
    if planes is None or Size(*mask.shape) != header.size or not is_sound(data):
        return None
    return PictureWork(
        data,
        planes,
        header.orientation,
        np.ascontiguousarray(mask).view(np.uint8),
        tuple(crops),
        tuple(paste_part(mask, crop) for crop in crops),
        manifest.size.padding == "symmetric",
    )
