"""What each task makes of an upload: the rows for the engine, and how their tiles become a picture again. Pure.

One function a task; the rest of a request's life is the same for all and is in service/pipeline.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from engines.manifest import Manifest
from service.core.errors import InvalidOption, InvalidRequest, SizesDiffer
from service.core.items import Bool2D, Crop, ImageFormat, Picture, Sample, Size, Timings
from service.core.schemas import GenerateOptions, InpaintOptions, TranslateOptions
from service.imaging import colours, crops, masks, postprocess, preprocess
from service.imaging.files import codec, decode_cost, label_maps
from service.imaging.files.header import Header, read_header
from service.imaging.pool.parallel_steps import SideBySide, in_turn
from service.telemetry.profiler_ranges import stage_range

Tile = NDArray[np.uint8]
A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A decoded request.

    rows: for the engine, still without latents.
    size: of the result.
    coverage: share of the pixels that are filled; None where no mask is.
    finish: the tiles of all rows, in their order, to the picture. Safe to call from several threads.
    """

    rows: list[Sample]
    size: Size
    coverage: float | None
    finish: Callable[[Sequence[Tile]], Picture]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a mask asks for: pixels to fill (H×W, True), their share, the crops, and where their tiles go."""

    hole: Bool2D
    coverage: float
    crops: list[Crop]
    places: list[postprocess.PasteArea | None]


class Weight(NamedTuple):
    """Of a request's files: how long the longest takes to decode, in pixels of a plain JPEG, and all files' memory."""

    effort: int = 0
    decoded_bytes: int = 0
    large: bool = False
    """Whether one of them is."""


@dataclass(frozen=True, slots=True)
class Uploads:
    """The files of a request, and their headers, which are read once."""

    image: bytes
    mask: bytes = b""
    instance: bytes | None = None
    reference: bytes | None = None
    _headers: dict[str, Header] = field(default_factory=dict, init=False, repr=False, compare=False)

    def header(self, part: str, max_pixels: int) -> Header:
        """Of the file of that name.

        Raises:
            UnsupportedType, TooLarge, InvalidImage: as `read_header`.
        """
        header = self._headers.get(part)
        if header is None:
            header = self._headers[part] = read_header(getattr(self, part), max_pixels=max_pixels)
        return header


def weigh(uploads: Uploads, max_pixels: int) -> Weight:
    """How long and how much memory decoding the files takes, from their headers alone.

    Raises:
        UnsupportedType, TooLarge, InvalidImage: as the decoder would, but before anything is decoded.
    """
    parts = ("image", "mask", "instance", "reference")
    files = [(uploads.header(part, max_pixels), len(data)) for part in parts if (data := getattr(uploads, part))]
    effort = max(decode_cost.decode_effort(header, file_bytes) for header, file_bytes in files)
    decoded_bytes = sum(decode_cost.decoded_bytes(header, file_bytes) for header, file_bytes in files)
    return Weight(effort, decoded_bytes, any(decode_cost.is_large(header, file_bytes) for header, file_bytes in files))


def prepare_inpaint(
    uploads: Uploads,
    options: InpaintOptions,
    max_pixels: int,
    manifest: Manifest,
    timings: Timings,
    side_by_side: SideBySide = in_turn,
) -> Prepared:
    """Crops round the holes of a picture.

    What follows from the mask alone is worked out beside decoding the picture, and counts as decoding.

    Raises:
        UnsupportedType, TooLarge, InvalidImage, SizesDiffer, InvalidOption: the image or the mask cannot be used.
    """
    with timed(timings, "decode"):
        picture, plan = _both(
            lambda: _decode(uploads, options.format, max_pixels),
            lambda: _plan(uploads, options, max_pixels, manifest),
            side_by_side,
        )
    with timed(timings, "preprocess"):
        rows = [preprocess.inpaint_sample(picture, plan.hole, crop, manifest) for crop in plan.crops]
    finish = partial(postprocess.paste, picture, plan.hole, plan.crops, places=plan.places)
    return Prepared(rows, picture.size, plan.coverage, finish)


def prepare_translate(
    uploads: Uploads,
    options: TranslateOptions,
    max_pixels: int,
    manifest: Manifest,
    timings: Timings,
    _: SideBySide = in_turn,
) -> Prepared:
    """The whole of a picture, or of a label map, with the instance map and the reference where the model takes them.

    Raises:
        UnsupportedType, TooLarge, InvalidImage, SizesDiffer, InvalidOption: one of the files cannot be used.
        InvalidRequest: the model takes an instance map or a reference and there is none.
    """
    with timed(timings, "decode"):
        label = manifest.input("label")
        if label is None:
            picture = _decode(uploads, options.format, max_pixels)
        else:
            picture = label_maps.decode_labels(uploads.image, label.classes, max_pixels=max_pixels)
            codec.check_encodable(picture.size, options.format or "png")
        instance = _decode_instance(uploads.instance, picture.size, max_pixels, manifest)
        reference = _decode_reference(uploads.reference, picture.size, max_pixels, manifest)
    with timed(timings, "preprocess"):
        crop = crops.plan_whole(picture.size, manifest.size)
        arrays = _translate_arrays(picture, instance, crop, manifest)
        if reference is not None:
            arrays["reference"] = preprocess.reference_array(reference, crop, manifest)
        row = Sample(crop.tile, arrays)
    return Prepared([row], picture.size, None, partial(_translated, picture, crop, manifest))


def prepare_generate(
    options: GenerateOptions, manifest: Manifest, _timings: Timings, _: SideBySide = in_turn
) -> Prepared:
    """One tile of the model's (smallest) size, from the latent alone.

    Raises:
        InvalidOption: the format cannot hold a picture of that size.
    """
    size = Size(*next(manifest.size.buckets()))
    codec.check_encodable(size, options.format or "png")
    return Prepared([Sample(size, {})], size, None, _generated)


@contextmanager
def timed(timings: Timings, stage: str) -> Iterator[None]:
    """Adds the seconds that its block takes, and marks it for a profiler."""
    started = perf_counter()
    with stage_range(stage):
        yield
    timings.ended(stage, perf_counter() - started)


def _decode(uploads: Uploads, output_format: ImageFormat | None, max_pixels: int) -> Picture:
    picture = codec.decode(uploads.image, max_pixels=max_pixels, header=uploads.header("image", max_pixels))
    codec.check_encodable(picture.size, output_format or "png")  # now, and not after it was computed
    return picture


def _plan(uploads: Uploads, options: InpaintOptions, max_pixels: int, manifest: Manifest) -> _Plan:
    size = uploads.header("image", max_pixels).size
    header = uploads.header("mask", max_pixels)
    hole = codec.decode_mask(uploads.mask, options.mask_mode, max_pixels=max_pixels, header=header)
    hole = masks.fit_mask(hole, size, options.mask_resize)
    look = partial(codec.measure_brightness, uploads.mask, max_pixels=max_pixels, header=header)
    coverage = masks.measure_coverage(hole, options.mask_mode, look)
    planned = crops.plan(hole, manifest.size, options.strategy)
    return _Plan(hole, coverage, planned, [postprocess.paste_area(hole, crop) for crop in planned])


def _both(first: Callable[[], A], second: Callable[[], B], side_by_side: SideBySide) -> tuple[A, B]:
    """What both give; where both raise, the first one's error."""
    pieces: list[Callable[[], Any]] = [first, second]
    one, other = side_by_side(pieces)
    return one, other


def _wanted(data: bytes | None, part: str, what: str, manifest: Manifest) -> bytes | None:
    """The file of a part that some models take and others do not; None where neither has it.

    Raises:
        InvalidOption, InvalidRequest: it is there for nothing, or missing.
    """
    taken = manifest.input(part) is not None
    if data is not None and not taken:
        raise InvalidOption(f"{manifest.key} takes no `{part}`; leave it out", code=f"{part}_not_taken")
    if data is None and taken:
        raise InvalidRequest(f"{manifest.key} takes {what}: the file part `{part}` is missing", code="missing_part")
    return data


def _decode_instance(data: bytes | None, size: Size, max_pixels: int, manifest: Manifest) -> label_maps.Ids | None:
    data = _wanted(data, "instance", "instance ids (a grey PNG of 8 or 16 bits)", manifest)
    if data is None:
        return None
    instance = label_maps.decode_ids(data, "instance", max_pixels=max_pixels)
    _require_size(Size(*instance.shape), size, "instance map")
    return instance


def _decode_reference(data: bytes | None, size: Size, max_pixels: int, manifest: Manifest) -> Picture | None:
    data = _wanted(data, "reference", "a picture whose look is taken", manifest)
    if data is None:
        return None
    reference = codec.decode(data, max_pixels=max_pixels)
    _require_size(reference.size, size, "reference")
    return reference


def _require_size(have: Size, size: Size, what: str) -> None:
    if have != size:
        raise SizesDiffer(f"the image is {size} and the {what} {have}; send equal sizes")


def _translate_arrays(
    picture: Picture, instance: label_maps.Ids | None, crop: Crop, manifest: Manifest
) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]]
    image = manifest.input("image")
    if image is None:
        arrays = {"label": label_maps.fitted(picture.pixels[:, :, 0], crop).astype(np.uint8)}
    else:
        seen = colours.lightness(picture) if image.colours == "lightness" else picture
        arrays = dict(preprocess.translate_sample(seen, crop, manifest).arrays)
    return arrays if instance is None else {**arrays, "instance": label_maps.fitted(instance, crop)}


def _translated(picture: Picture, crop: Crop, manifest: Manifest, tiles: Sequence[Tile]) -> Picture:
    if manifest.output.colours == "ab":
        return colours.coloured(picture, tiles[0][: crop.scaled.height, : crop.scaled.width])
    return postprocess.translated(picture, crop, tiles[0], manifest)


def _generated(tiles: Sequence[Tile]) -> Picture:
    return Picture(tiles[0])
