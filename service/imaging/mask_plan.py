"""The plan for a mask: the pixels to fill, the crops that fill them, and where the fills are pasted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from engines.manifest import Manifest
from service.core.batch_rows import Crop
from service.core.errors import about_file
from service.core.order import Order
from service.core.pictures import Bool2D
from service.core.schemas import InpaintOptions
from service.imaging import crops, masks
from service.imaging.files import codec
from service.imaging.files.header import Header
from service.imaging.pasting.areas import PasteArea, paste_areas
from service.imaging.pool.parallel_steps import DeferredStep
from service.imaging.texture.windows import TexturePlan, plan_texture

Headers = Mapping[str, Header]
"""The header of each file of a request, by part name; read once."""


@dataclass(frozen=True, slots=True)
class MaskPlan:
    """The plan for a mask.

    hole: H×W of the picture, True = fill.
    coverage: the share of the pixels that are filled.
    crops: the parts of the picture that the model sees.
    areas: the areas where the fill of each crop is pasted, with their seams; computed at the first call.
    texture: where texture is copied; None if it was not requested.
    """

    hole: Bool2D
    coverage: float
    crops: list[Crop]
    areas: DeferredStep[list[list[PasteArea]]]
    texture: TexturePlan | None

    def rows_filled(self) -> list[range]:
        """Return the rows in which pixels are filled, and perhaps some next to them."""
        return [range(area.part.top, area.part.bottom) for areas in self.areas() for area in areas]


def plan_mask(order: Order, headers: Headers, max_pixels: int, manifest: Manifest) -> MaskPlan:
    """Decode the mask of an inpainting order and plan from it alone.

    Raises:
        UnsupportedType, TooLarge, InvalidImage, SizesDiffer, InvalidOption: the mask cannot be used.
    """
    data, header, options = order.files["mask"], headers["mask"], order.options_as(InpaintOptions)
    read = partial(codec.decode_mask, data, options.mask_mode, max_pixels=max_pixels, header=header)
    hole = about_file("mask", read)
    hole = masks.fit_mask(hole, headers["image"].size, options.mask_resize)
    measure = partial(codec.measure_brightness, data, max_pixels=max_pixels, header=header)
    coverage = masks.measure_coverage(hole, options.mask_mode, measure)
    planned = crops.plan_crops(hole, manifest.size, options.strategy)
    areas = DeferredStep(lambda: [paste_areas(hole, crop) for crop in planned])
    return MaskPlan(hole, coverage, planned, areas, plan_texture(hole) if order.wants_texture else None)
