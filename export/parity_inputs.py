"""The inputs that graphs are compared on: pictures, kinds of masks (empty, full, thin, …), sizes and batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from engines.manifest import SizeRule, TensorSpec
from export.errors import SamplesMissing

Array = NDArray[Any]
_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}
_MAX_PICTURES = 3
_SAMPLES_PER_ROW = 2
MASK_KINDS = ("ordinary", "empty", "full", "thin", "sparse")


class Contract(Protocol):
    """The tensors and sizes of a graph, which inputs are drawn for; `Interface` implements it."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The tensors, in their order."""
        ...

    @property
    def size(self) -> SizeRule:
        """The sizes of tiles."""
        ...


@dataclass(frozen=True)
class ParityInput:
    """One batch of inputs and its name in the report."""

    name: str
    feed: dict[str, Array]


def find_pictures(directory: Path) -> list[Image.Image]:
    """Open a few pictures of a folder in RGB, spread over its file names.

    Masks (`*_mask.*`), folders and hidden files, as a Mac's ._a.jpg beside a.jpg, are skipped.

    Raises:
        SamplesMissing: the folder is missing or has no picture, or a chosen file is not a picture.
    """
    paths = sorted(directory.glob("*")) if directory.is_dir() else []
    shown = (path for path in paths if not path.name.startswith(".") and not path.is_dir())
    named = [path for path in shown if path.suffix.lower() in _SUFFIXES and not path.stem.endswith("_mask")]
    if not named:
        raise SamplesMissing(f"{directory}: no pictures to compare the graphs on; give a folder of them with --images")
    return [_read_picture(path) for path in _spread_over(named)]


def _spread_over(paths: list[Path]) -> list[Path]:
    step = max(1, len(paths) // _MAX_PICTURES)
    return paths[::step][:_MAX_PICTURES]


def _read_picture(path: Path) -> Image.Image:
    try:
        with Image.open(path) as image:
            rgb: Image.Image = image.convert("RGB")
            return rgb
    except (OSError, Image.DecompressionBombError) as error:
        raise SamplesMissing(
            f"{path}: not a picture that can be decoded ({error}); remove it from the folder"
        ) from error


def parity_inputs(
    interface: Contract, pictures: Sequence[Image.Image], rng: np.random.Generator
) -> Iterator[ParityInput]:
    """Yield every batch to compare: each picture, each kind of mask, a batch of three, and a second size."""
    sizes = list(dict.fromkeys(interface.size.tile_sizes()))
    masked = any(spec.name == "mask" for spec in interface.inputs)
    first = sizes[0]
    for index, picture in enumerate(pictures):
        yield ParityInput(f"ordinary {index + 1}", _make_feed(interface, [picture], first, "ordinary", rng))
    for kind in MASK_KINDS[1:] if masked else ():
        yield ParityInput(f"{kind} mask", _make_feed(interface, pictures[:1], first, kind, rng))
    yield ParityInput("batch of 3", _make_feed(interface, list(islice(cycle(pictures), 3)), first, "ordinary", rng))
    if len(sizes) > 1:
        height, width = sizes[1]
        yield ParityInput(f"{height}×{width}", _make_feed(interface, pictures[-1:], sizes[1], "ordinary", rng))


def _make_feed(
    interface: Contract, pictures: Sequence[Image.Image], size: tuple[int, int], kind: str, rng: np.random.Generator
) -> dict[str, Array]:
    return {
        spec.name: np.stack([_input_value(spec, picture, size, rng) for picture in pictures])
        if spec.name != "mask"
        else np.stack([draw_mask(kind, size, rng)[None] for _ in pictures])
        for spec in interface.inputs
    }


def _input_value(spec: TensorSpec, picture: Image.Image, size: tuple[int, int], rng: np.random.Generator) -> Array:
    if spec.name == "latent":
        return rng.standard_normal([d if isinstance(d, int) else _SAMPLES_PER_ROW for d in spec.shape[1:]], np.float32)
    if spec.name == "label":
        return _brightness_regions(picture, size, spec.classes or 1).astype(np.uint8)
    if spec.name == "instance":
        # ids up to 39003, beyond the integers that FP16 represents exactly (2048)
        return _brightness_regions(picture, size, 40).astype(np.int32) * 1000 + 3
    return _picture_planes(picture, int(spec.shape[1]), size)


def _brightness_regions(picture: Image.Image, size: tuple[int, int], count: int) -> Array:
    """Return a 1×H×W map of areas of similar brightness, numbered from 0 to count - 1."""
    return (_picture_planes(picture, 1, size) * (count - 1e-3)).astype(np.int64)


def _picture_planes(picture: Image.Image, channels: int, size: tuple[int, int]) -> Array:
    height, width = size
    resized = picture.convert("L" if channels == 1 else "RGB").resize((width, height), Image.Resampling.BICUBIC)
    values: NDArray[np.float32] = np.asarray(resized, np.float32) / np.float32(255)
    planes: Array = np.atleast_3d(values)[..., :channels].transpose(2, 0, 1).copy()
    return planes


def draw_mask(kind: str, size: tuple[int, int], rng: np.random.Generator) -> NDArray[np.float32]:
    """Draw an H×W mask, 1 = fill: `ordinary` strokes, `thin` lines, `sparse` gaps, `empty` or `full`."""
    height, width = size
    if kind in ("empty", "full"):
        return np.full(size, kind == "full", np.float32)
    canvas = Image.new("L", (width, height))
    draw = ImageDraw.Draw(canvas)
    thickness = 1 if kind in ("thin", "sparse") else max(2, min(size) // 10)
    for _ in range(5):
        points = [(int(rng.integers(width)), int(rng.integers(height))) for _ in range(4)]
        draw.line(points, fill=255, width=thickness, joint="curve")
    strokes = np.asarray(canvas, np.uint8) > 0
    return (strokes ^ (kind == "sparse")).astype(np.float32)
