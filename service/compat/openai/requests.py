"""From requests of OpenAI's images API to orders. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.compat.json_fields import JsonFields
from service.core.errors import InvalidOption, InvalidRequest
from service.core.order import Order
from service.core.schemas import GenerateOptions, InpaintOptions
from service.intake.options import options_of
from service.web.multipart import Part, PartLimits

EDIT_LIMITS = PartLimits(field_bytes=128 * 1024, parts=64)
"""Limits of a form: a prompt has up to 32,000 characters."""
_EDIT_FIELDS = ("model", "n", "seed", "mask_mode", "mask_resize", "strategy", "texture", "save")
_GENERATION_FIELDS = ("model", "n", "seed", "save")
_SHAPING_FIELDS = ("output_format", "output_compression", "response_format", "stream")
"""Fields of both calls that decide the form of the response."""
_QUALITY = "100"
"""OpenAI's default of `output_compression`."""
_IMAGE = re.compile(r"image(\[[0-9]*\])?")
"""Name of a part with an image: OpenAI's clients send `image` and `image[]`, others number their images."""
_TRUE, _FALSE = ("true", "1"), ("", "false", "0")


@dataclass(frozen=True, slots=True)
class ImagesRequest:
    """An order, and the form of its response."""

    order: Order
    stream: bool = False
    own_alpha: bool = False
    """Whether the picture's own alpha is the mask, so that its file must be split into picture and mask first."""
    links: bool = False
    """Whether the response has links to stored results in place of the pictures."""
    ignored: frozenset[str] = frozenset()
    """Names of fields that have no effect."""

    @property
    def varies_with(self) -> tuple[str, ...]:
        """Return the values that the response depends on besides the order."""
        return ("openai", str(self.stream), str(self.links))


def parse_edit(parts: Sequence[Part]) -> ImagesRequest:
    """Convert the parts of POST /v1/images/edits.

    Raises:
        InvalidRequest: there is no image or more than one, a file was sent as text, or a part was sent twice.
        InvalidOption: a field is out of range.
        NotFound: no model can have this name.
    """
    images = [part for part in parts if _IMAGE.fullmatch(part.name)]
    masks = [part for part in parts if part.name == "mask"]
    fields = _texts([part for part in parts if part not in images and part not in masks])
    files = {"image": _only(images, "image")}
    if masks and (masks[0].is_file or masks[0].size):
        files["mask"] = _only(masks, "mask")
    return _edit_of(files, fields, frozenset(fields))


def parse_json_edit(fields: JsonFields) -> ImagesRequest:
    """Convert the JSON of POST /v1/images/edits, with `images: [{"image_url": …}]` and `mask: {"image_url": …}`.

    Raises:
        InvalidRequest: there is no image or more than one, or a picture is not base64, or is a URL or the id of a file.
        InvalidOption: a field is out of range.
        NotFound: no model can have this name.
    """
    images = fields.objects("images")
    if not images:
        missing = "`images` has no image; send one, as data URL in its `image_url`"
        raise InvalidRequest(missing, code="missing_part", field="images")
    if len(images) > 1:
        raise _several_images(len(images), "images")
    files = {"image": images[0].picture("image_url", "images[0].image_url")}
    if "mask" in fields:
        files["mask"] = fields.nested("mask").picture("image_url", "mask.image_url")
    texts = {name: fields.scalar(name) for name in (*_EDIT_FIELDS, *_SHAPING_FIELDS) if name in fields}
    return _edit_of(files, texts, frozenset(fields) - {"images", "mask"})


def parse_generation(fields: JsonFields) -> ImagesRequest:
    """Convert the JSON of POST /v1/images/generations.

    Raises:
        InvalidOption: a field is out of range.
        NotFound: no model can have this name.
    """
    used = (*_GENERATION_FIELDS, *_SHAPING_FIELDS)
    texts = {name: fields.scalar(name) for name in used if name in fields}
    options = _options(GenerateOptions, texts, _GENERATION_FIELDS, "count")
    return ImagesRequest(
        Order("generate", {}, options),
        stream=_is_stream(texts),
        links=_wants_links(texts),
        ignored=frozenset(set(fields) - {*used}),
    )


def _edit_of(files: Mapping[str, bytes], fields: Mapping[str, str], sent: frozenset[str]) -> ImagesRequest:
    """Return the request for a fill; `sent` are the names of all fields but the files, also of unread ones."""
    options = _options(InpaintOptions, fields, _EDIT_FIELDS, "samples")
    used = {*_EDIT_FIELDS, *_SHAPING_FIELDS}
    if "mask" not in files and options.mask_mode != "alpha":
        used.discard("mask_mode")
    if "mask" not in files or not fields.get("mask_mode"):
        options = options.model_copy(update={"mask_mode": "alpha"})
    return ImagesRequest(
        Order("inpaint", files, options),
        stream=_is_stream(fields),
        own_alpha="mask" not in files,
        links=_wants_links(fields),
        ignored=sent - used,
    )


def _only(files: Sequence[Part], name: str) -> bytes:
    if not files:
        raise InvalidRequest(
            f"`{name}` is missing; send the file as multipart/form-data", code="missing_part", field=name
        )
    if len(files) > 1:
        raise _several_images(len(files), name)
    if not files[0].is_file:
        text = f"`{name}` is a text field; send the file itself, as URLs are never fetched"
        raise InvalidRequest(text, field=name)
    if not files[0].size:
        raise InvalidRequest(f"`{name}` is empty", code="empty_part", field=name)
    return files[0].data


def _several_images(number: int, name: str) -> InvalidRequest:
    several = f"{number} files as `{name}`: this server edits one at a time"
    return InvalidRequest(several, code="repeated_part", field=name)


def _texts(parts: Sequence[Part]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for part in parts:
        if part.is_file:
            raise InvalidRequest(f"unexpected file {part.name[:80]!r}; files are image and mask", field=part.name[:80])
        if part.name in fields and not part.name.endswith("[]"):
            twice = f"the part {part.name[:80]!r} is sent twice; send it once"
            raise InvalidRequest(twice, code="repeated_part", field=part.name[:80])
        fields[part.name] = part.text
    return fields


def _options(kind: type[Any], fields: Mapping[str, str], names: Sequence[str], number: str) -> Any:
    """Return the options of class `kind`; `number` names its field for the number of pictures, OpenAI's `n`."""
    links = _wants_links(fields)
    if links and _is_stream(fields):
        raise _unusable_format("a stream has pictures, not links; leave out stream or url")
    file_format = fields.get("output_format", "")
    values: dict[str, Any] = {name: fields.get(name) for name in names if name != "n"}
    values |= {number: fields.get("n"), "format": file_format or "png", "quality": _quality(fields)}
    options = options_of(kind, values, {number: "n", "format": "output_format", "quality": "output_compression"})
    if links and options.save is False:
        raise _unusable_format("a link leads to a stored result; leave out save=false")
    return options.model_copy(update={"save": True}) if links else options


def _wants_links(fields: Mapping[str, str]) -> bool:
    """Return whether the field `response_format` requests links.

    Raises:
        InvalidOption: the field has an unknown value.
    """
    wanted = fields.get("response_format", "")
    if wanted not in ("", "b64_json", "url"):
        raise _unusable_format("send b64_json or url")
    return wanted == "url"


def _unusable_format(why: str) -> InvalidOption:
    return InvalidOption(f"response_format: {why}", field="response_format")


def _quality(fields: Mapping[str, str]) -> str:
    """Return the quality, by default OpenAI's; OpenAI also allows 0, which becomes 1, the lowest here.

    Raises:
        InvalidOption: it is outside OpenAI's range.
    """
    text = fields.get("output_compression") or _QUALITY
    try:
        number = float(text)
    except ValueError:  # refused with the other options
        return text
    if not 0 <= number <= 100:
        wrong = "output_compression: send a whole number from 0 to 100"
        raise InvalidOption(wrong, field="output_compression")
    return text if number else "1"


def _is_stream(fields: Mapping[str, str]) -> bool:
    """Return whether the field `stream` requests a stream.

    Raises:
        InvalidOption: the field is neither true nor false, such as the `undefined` and `null` of careless clients.
    """
    text = fields.get("stream", "").strip().lower()
    if text not in (*_TRUE, *_FALSE):
        raise InvalidOption("stream: send true or false", field="stream")
    return text in _TRUE
