"""From IOPaint's requests to orders. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from service.compat.json_fields import JsonFields
from service.core.errors import InvalidImage, TooLarge, UnsupportedType
from service.core.order import Order
from service.core.schemas import InpaintOptions
from service.imaging.files.header import read_header
from service.intake.options import options_of

JPEG_QUALITY = 100
"""Quality of JPEG and WebP, which is IOPaint's default: its page sends each fill back for the next one."""
_USED_FIELDS = frozenset({"image", "mask", "sd_seed"})
_RANDOM = -1


@dataclass(frozen=True, slots=True)
class InpaintRequest:
    """An order, and what else its response needs."""

    order: Order
    seed: int
    """The seed of the request, reported if the model uses none; -1 if the request has no seed."""
    ignored: frozenset[str]


def parse_inpaint(fields: JsonFields, max_pixels: int) -> InpaintRequest:
    """Convert the JSON of POST /api/v1/inpaint; the response has the format of the upload.

    An upload that cannot be read has no format: the pipeline refuses it, and counts the failure for its model.

    Raises:
        InvalidRequest: as `JsonFields.picture`.
        InvalidOption: the seed is not a number, or out of range.
    """
    image, mask = fields.picture("image"), fields.picture("mask")
    seed = fields.value("sd_seed", int, _RANDOM)
    chosen = {
        "format": _format_of(image, max_pixels),
        "quality": JPEG_QUALITY,
        "seed": None if seed == _RANDOM else seed,
    }
    options = options_of(InpaintOptions, chosen, {"seed": "sd_seed"})
    return InpaintRequest(
        Order("inpaint", {"image": image, "mask": mask}, options), seed, frozenset(fields) - _USED_FIELDS
    )


def _format_of(file: bytes, max_pixels: int) -> str | None:
    try:
        return read_header(file, max_pixels=max_pixels).format
    except (InvalidImage, TooLarge, UnsupportedType):
        return None
