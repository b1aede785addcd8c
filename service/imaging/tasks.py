"""The image steps that differ between the tasks: from an order to the engine's rows, and from tiles to a picture. Pure.

The table `PREPARE` has one function for each task; all other steps are common and are in service/pipeline.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engines.manifest import Manifest, Task
from service.core.batch_rows import Crop, Sample
from service.core.call import Timings
from service.core.errors import InvalidOption, InvalidRequest, SizesDiffer, about_file
from service.core.order import Order
from service.core.pictures import Picture, Size
from service.imaging import colours, crops, postprocess, preprocess
from service.imaging.files import codec, decode_cost, label_maps
from service.imaging.files.header import Header, read_header
from service.imaging.mask_plan import Headers, MaskPlan, plan_mask
from service.imaging.pool.parallel_steps import DeferredStep, StepRunner, run_sequentially
from service.imaging.several_results import bytes_of_rows
from service.imaging.texture.windows import TexturePlan, working_bytes
from service.telemetry.profiler_ranges import stage_range

Tile = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """A decoded request: the engine's rows and the function that finishes their tiles.

    rows: the samples for the engine, of one result and still without latents, or of all (`several_results`).
    size: the size of the result.
    coverage: the share of the pixels that are filled; None without a mask.
    finish: makes a picture from the tiles of all rows, in their order; once for each result. Thread-safe.
    texture: where texture is copied; None if it was not requested.
    strips: returns the strips of the result that can be encoded without its tiles, for `codec.encode`. Thread-safe.
    """

    rows: list[Sample]
    size: Size
    coverage: float | None
    finish: Callable[[Sequence[Tile]], Picture]
    texture: TexturePlan | None = None
    strips: Callable[[], codec.StripsAhead] = dict

    def work_ahead(self, ended: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Encode the strips that need no tile, one in each step, until the request has `ended`."""
        for encode_strip in () if ended() else self.strips().values():
            yield
            if ended():
                return
            encode_strip()


class DecodingCost(NamedTuple):
    """The decoding cost of a request's files: effort of the slowest, in pixels of a plain JPEG, and memory of all."""

    effort: int = 0
    decoded_bytes: int = 0
    large: bool = False
    """Whether one of the files is large."""
    copies_texture: bool = False

    @property
    def slow(self) -> bool:
        """Whether the request waits among the large ones: one of its files is large, or texture is copied."""
        return self.large or self.copies_texture

    def with_results(self, order: Order, headers: Headers, manifest: Manifest) -> DecodingCost:
        """Add the memory of all results but the first, which counts as the decoded upload, of tiles, and of texture.

        A result has the upload's size; from inpainting it has its channels and depth, too. How many tiles are needed
        is not known before decoding: one for each result is counted, as large as that for the whole picture.
        """
        if (header := headers.get("image")) is None:
            return self
        if order.task == "inpaint":
            channels, depth = 1 if header.colour == "grey" else 3, 2 if header.bits == 16 else 1
        else:
            channels, depth = 1 if manifest.output_channels == 1 else 3, 1
        pixels = header.size.height * header.size.width
        working = working_bytes(pixels) * order.options.pictures if order.wants_texture else 0
        result_bytes = pixels * (channels + (header.alpha or header.transparent)) * depth
        tile = crops.plan_whole(header.size, manifest.size).tile
        held = (order.options.pictures - 1) * result_bytes + bytes_of_rows(tile, manifest, order.options.pictures)
        decoded_bytes = self.decoded_bytes + held + working
        return self._replace(decoded_bytes=decoded_bytes, copies_texture=order.wants_texture)


def read_headers(files: Mapping[str, bytes], max_pixels: int) -> dict[str, Header]:
    """Read the headers of the files, by part name.

    Raises:
        UnsupportedType, TooLarge, InvalidImage: as `read_header`.
    """
    read = partial(read_header, max_pixels=max_pixels)
    return {part: about_file(part, partial(read, data)) for part, data in sorted(files.items())}


def estimate_cost(files: Mapping[str, bytes], headers: Headers) -> DecodingCost:
    """Estimate the time and memory that decoding the files takes, from their headers alone."""
    sized = [(header, len(files[part])) for part, header in headers.items()]
    effort = max((decode_cost.decode_effort(header, file_bytes) for header, file_bytes in sized), default=0)
    decoded_bytes = sum(decode_cost.decoded_bytes(header, file_bytes) for header, file_bytes in sized)
    return DecodingCost(
        effort, decoded_bytes, any(decode_cost.is_large(header, file_bytes) for header, file_bytes in sized)
    )


def prepare_inpaint(
    order: Order,
    headers: Headers,
    max_pixels: int,
    manifest: Manifest,
    timings: Timings,
    run_steps: StepRunner = run_sequentially,
) -> PreparedRequest:
    """Prepare an inpainting order: crops around the holes of a picture.

    The plan needs only the mask, so it is made in parallel with decoding the picture, and counts as decoding. The seam
    and the strips of the file above and below all holes need no tile.

    Raises:
        UnsupportedType, TooLarge, InvalidImage, SizesDiffer, InvalidOption: the image or the mask cannot be used.
    """
    image = order.files["image"]
    codec.check_encodable(headers["image"].size, order.format)  # fail before the engine computes it
    with timed_stage(timings, "decode"):
        pieces: list[Callable[[], Any]] = [
            partial(about_file, "image", partial(codec.decode, image, max_pixels=max_pixels, header=headers["image"])),
            partial(plan_mask, order, headers, max_pixels, manifest),
        ]
        picture, plan = run_steps(pieces)
    with timed_stage(timings, "preprocess"):
        rows = [preprocess.inpaint_sample(picture, plan.hole, crop, manifest) for crop in plan.crops]
    finish = partial(_finish_inpainted, picture, plan, order.options.pictures == 1)
    strips = DeferredStep(lambda: _strips_ahead(picture, plan, order))
    return PreparedRequest(rows, picture.size, plan.coverage, finish, plan.texture, strips)


_OPTIONAL = MappingProxyType(
    {"instance": "instance ids (a grey or palette PNG)", "reference": "a picture whose style is used"}
)
"""Files that some models for translation need, and what they are."""


def prepare_translate(
    order: Order,
    headers: Headers,
    max_pixels: int,
    manifest: Manifest,
    timings: Timings,
    run_steps: StepRunner = run_sequentially,
) -> PreparedRequest:
    """Prepare a translation: a whole picture or label map, with instance map and reference if the model accepts them.

    The files are decoded in parallel.

    Raises:
        UnsupportedType, TooLarge, InvalidImage, SizesDiffer, InvalidOption: one of the files cannot be used.
        InvalidRequest: the model needs an instance map or a reference and there is none.
    """
    files = order.files
    optional = {part: _optional_file(files.get(part), part, what, manifest) for part, what in _OPTIONAL.items()}
    with timed_stage(timings, "decode"):
        pieces: dict[str, Callable[[], Any]] = {"image": partial(_decode_image, order, headers, max_pixels, manifest)}
        if (data := optional["instance"]) is not None:
            pieces["instance"] = partial(label_maps.decode_ids, data, max_pixels=max_pixels)
        if (data := optional["reference"]) is not None:
            pieces["reference"] = partial(codec.decode, data, max_pixels=max_pixels)
        named = [partial(about_file, part, piece) for part, piece in pieces.items()]
        decoded = dict(zip(pieces, run_steps(named), strict=True))
        picture, instance, reference = decoded["image"], decoded.get("instance"), decoded.get("reference")
        codec.check_encodable(picture.size, order.format)  # fail before the engine computes it
        if instance is not None:
            _require_size(Size(*instance.shape), picture.size, "instance map")
        if reference is not None:
            _require_size(reference.size, picture.size, "reference")
    with timed_stage(timings, "preprocess"):
        crop = crops.plan_whole(picture.size, manifest.size)
        arrays = _translate_arrays(picture, instance, crop, manifest)
        if reference is not None:
            arrays["reference"] = preprocess.reference_array(reference, crop, manifest)
        row = Sample(crop.tile, arrays)
    return PreparedRequest([row], picture.size, None, partial(_finish_translated, picture, crop, manifest))


def prepare_generate(
    order: Order,
    _headers: Headers,
    _max_pixels: int,
    manifest: Manifest,
    _timings: Timings,
    _: StepRunner = run_sequentially,
) -> PreparedRequest:
    """Prepare a generation: one tile of the model's smallest size, from the latent alone.

    Raises:
        InvalidOption: the format cannot hold a picture of that size.
    """
    size = Size(*next(manifest.size.tile_sizes()))
    codec.check_encodable(size, order.format)
    return PreparedRequest([Sample(size, {})], size, None, _finish_generated)


Prepare = Callable[[Order, Headers, int, Manifest, Timings, StepRunner], PreparedRequest]
PREPARE: Mapping[Task, Prepare] = MappingProxyType(
    {"inpaint": prepare_inpaint, "translate": prepare_translate, "generate": prepare_generate}
)
"""The function of each task that prepares an order for the engine."""


class timed_stage:  # noqa: N801 -- used like a function; a generator would take four times as long
    """Add the seconds that the block takes to `timings` unless it raises, and mark the block for a profiler."""

    __slots__ = ("_range", "_stage", "_started", "_timings")

    def __init__(self, timings: Timings, stage: str) -> None:
        self._timings, self._stage = timings, stage
        self._range = stage_range(stage)

    def __enter__(self) -> None:
        self._started = perf_counter()
        self._range.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._range.__exit__(kind, error, trace)
        if kind is None:
            self._timings.ended(self._stage, perf_counter() - self._started)


def _optional_file(data: bytes | None, part: str, what: str, manifest: Manifest) -> bytes | None:
    """Return the file of a part that only some models accept; None if neither the model nor the request has it.

    Raises:
        InvalidOption, InvalidRequest: the model does not accept the file, or needs it and it is missing.
    """
    accepted = manifest.input(part) is not None
    if data is not None and not accepted:
        raise InvalidOption(
            f"{manifest.key} does not accept `{part}`; leave it out", code=f"{part}_not_taken", field=part
        )
    if data is None and accepted:
        raise InvalidRequest(f"`{part}` is missing: {manifest.key} needs {what}", code="missing_part", field=part)
    return data


def _decode_image(order: Order, headers: Headers, max_pixels: int, manifest: Manifest) -> Picture:
    image = order.files["image"]
    if (label := manifest.input("label")) is None:
        return codec.decode(image, max_pixels=max_pixels, header=headers["image"])
    return label_maps.decode_labels(image, label.classes, max_pixels=max_pixels)


def _require_size(have: Size, size: Size, what: str) -> None:
    if have != size:
        raise SizesDiffer(f"the image is {size} and the {what} {have}; send equal sizes")


def _translate_arrays(
    picture: Picture, instance: label_maps.Ids | None, crop: Crop, manifest: Manifest
) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]]
    image = manifest.input("image")
    if image is None:
        arrays = {"label": label_maps.fit_ids_to_tile(picture.pixels[:, :, 0], crop).astype(np.uint8)}
    else:
        seen = colours.lightness(picture) if image.colours == "lightness" else picture
        arrays = dict(preprocess.translate_sample(seen, crop, manifest).arrays)
    return arrays if instance is None else {**arrays, "instance": label_maps.fit_ids_to_tile(instance, crop)}


def _finish_inpainted(picture: Picture, plan: MaskPlan, alone: bool, tiles: Sequence[Tile]) -> Picture:
    return postprocess.paste_fills(picture, plan.hole, plan.crops, tiles, plan.areas(), in_place=alone)


def _strips_ahead(picture: Picture, plan: MaskPlan, order: Order) -> codec.StripsAhead:
    return codec.strips_ahead(picture, order.format, order.options.quality, plan.rows_filled())


def _finish_translated(picture: Picture, crop: Crop, manifest: Manifest, tiles: Sequence[Tile]) -> Picture:
    if manifest.output.colours == "ab":
        return colours.apply_colours(picture, tiles[0][: crop.scaled.height, : crop.scaled.width])
    return postprocess.translated_picture(picture, crop, tiles[0], manifest)


def _finish_generated(tiles: Sequence[Tile]) -> Picture:
    return Picture(tiles[0])
