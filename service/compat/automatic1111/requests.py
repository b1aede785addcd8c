"""From AUTOMATIC1111's requests to orders. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from service.compat.json_fields import JsonFields
from service.core.errors import InvalidOption, InvalidRequest, TooLarge
from service.core.order import Order
from service.core.pictures import Size
from service.core.schemas import MAX_SEED, InpaintOptions
from service.imaging.files.header import MAX_SIDE
from service.intake.options import options_of

_USED_FIELDS = frozenset(
    {
        *("init_images", "mask", "inpainting_mask_invert", "width", "height"),
        *("batch_size", "n_iter", "seed", "override_settings"),
    }
)
_WHOLE = frozenset({"inpaint_full_res", "resize_mode"})
"""Fields that decide, together, whether a mask of another size is stretched over the image."""
_MODEL = "sd_model_checkpoint"
"""The only field of `override_settings` that has an effect."""
_RANDOM = -1


@dataclass(frozen=True, slots=True)
class Img2ImgRequest:
    """An order, and the size that its results are scaled to; None keeps the size of the image."""

    order: Order
    size: Size | None
    ignored: frozenset[str]


def parse_img2img(fields: JsonFields, max_pixels: int) -> Img2ImgRequest:
    """Convert the JSON of POST /sdapi/v1/img2img.

    Raises:
        InvalidRequest: the image or the mask is missing or not base64, or there are several images.
        InvalidOption: a field is out of range.
        NotFound: no model can have this name.
        TooLarge: the results would have more than `max_pixels`, or a side longer than `MAX_SIDE`.
    """
    size = _size(fields, max_pixels)
    images = fields.listed("init_images")
    if not images:
        raise InvalidRequest("`init_images` has no image; send one", code="missing_part")
    if len(images) > 1:
        raise InvalidRequest(f"`init_images` has {len(images)} images; send one", code="repeated_part")
    files = {"image": fields.file(images[0], "init_images"), "mask": fields.picture("mask")}
    seed = fields.value("seed", int, _RANDOM)
    inverted = _flag(fields, "inpainting_mask_invert", 0)
    whole = not _flag(fields, "inpaint_full_res", 1) and not fields.value("resize_mode", int, 0)
    settings = fields.nested("override_settings")
    chosen = {
        "model": settings.value(_MODEL, str, ""),
        "format": "png",
        "mask_mode": "black" if inverted else "white",
        "mask_resize": "nearest" if whole else None,
        "samples": _number(fields),
        "seed": None if seed == _RANDOM else seed,
    }
    options = options_of(InpaintOptions, chosen, {"samples": "batch_size × n_iter"})
    if options.seed is not None and options.seed + options.samples > MAX_SEED + 1:
        above = f"`seed`: the last of {options.samples} results would have a seed above {MAX_SEED}; send a smaller one"
        raise InvalidOption(above, field="seed")
    used = (_USED_FIELDS if size else _USED_FIELDS - {"width", "height"}) | (_WHOLE if whole else frozenset())
    ignored = {*(set(fields) - used), *(f"override_settings.{name}" for name in set(settings) - {_MODEL})}
    return Img2ImgRequest(Order("inpaint", files, options, own_seeds=True), size, frozenset(ignored))


def _flag(fields: JsonFields, name: str, default: int) -> int:
    return fields.value(name, int | bool, default)  # type: ignore[arg-type]  # both are sent


def _number(fields: JsonFields) -> int:
    """Return the number of results; both factors are checked, because two negative ones have a positive product."""
    numbers = [fields.value(name, int, 1) for name in ("batch_size", "n_iter")]
    if min(numbers) < 1:
        raise InvalidOption("`batch_size` and `n_iter`: send at least 1")
    return math.prod(numbers)


def _size(fields: JsonFields, max_pixels: int) -> Size | None:
    if "width" not in fields or "height" not in fields:
        return None
    size = Size(fields.value("height", int, 0), fields.value("width", int, 0))
    if min(size) < 1:
        raise InvalidOption("`width` and `height`: send at least 1")
    if size.height * size.width > max_pixels:
        raise TooLarge(f"`width` × `height` is over {max_pixels} pixels; ask for fewer", code="too_many_pixels")
    if max(size) > MAX_SIDE:
        raise TooLarge(f"`width` and `height`: ask for at most {MAX_SIDE:,}", code="too_many_pixels")
    return size
