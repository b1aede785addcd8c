"""The wiring of the tensor contract to a foreign graph, and the same in NumPy: the wrapped graph's reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from export.errors import GraphRefused
from export.foreign.declaration import ImageRange, InputSlice, MaskMeans, MaskRange
from export.foreign.ports import Port, Ports

Array = NDArray[Any]
IMAGE_SCALES: Mapping[ImageRange, tuple[float, float]] = {"0..1": (1, 0), "-1..1": (2, -1), "0..255": (255, 0)}
"""Factor and term that map [0, 1] to each range."""
MASK_SCALES: Mapping[MaskRange, tuple[float, float]] = {
    "0..1": (1, 0),
    "-0.5..0.5": (1, -0.5),
    "-1..1": (2, -1),
    "0..255": (255, 0),
}


@dataclass(frozen=True)
class Wiring:
    """Every property of the graph that the wiring depends on.

    hole_value: value that masked pixels of the picture are set to, in the net's range; None leaves them unchanged.
    """

    ports: Ports
    image: InputSlice
    mask: InputSlice
    image_range: ImageRange
    mask_range: MaskRange
    mask_means: MaskMeans
    hole_value: float | None
    output_range: ImageRange
    bgr: bool

    def flags(self) -> dict[str, str]:
        """Return the flags of the command that describe this wiring."""
        return {
            "image": str(self.image),
            "mask": str(self.mask),
            "output-tensor": self.ports.output,
            "layout": self.ports.layout,
            "image-range": self.image_range,
            "mask-range": self.mask_range,
            "mask-means": self.mask_means,
            **({} if self.hole_value is None else {"hole-value": f"{self.hole_value:g}"}),
            "output-range": self.output_range,
            "channels": "bgr" if self.bgr else "rgb",
        }


@dataclass(frozen=True)
class Part:
    """Consecutive channels of an input: filled with mask or picture, which is repeated `copies` times."""

    is_mask: bool
    copies: int


def parts_of(wiring: Wiring, port: Port) -> tuple[Part, ...]:
    """Return the parts that fill an input's channels, first to last.

    Raises:
        GraphRefused: a channel is filled twice or not at all, or the picture does not get three channels.
    """
    filled = sorted(_spans(wiring, port))
    ends = [0, *(after for _, after, _ in filled)]
    total = port.dims[1] if port.dims[1] is not None else ends[-1]
    if [first for first, _, _ in filled] != ends[:-1] or ends[-1] != total:
        raise GraphRefused(
            f"input {port} is filled by {', '.join(f'channels {a} to {b - 1}' for a, b, _ in filled)}; each channel is "
            "to be filled once: say with --image and --mask which are which, as in --image NAME[0:3] --mask NAME[3]"
        )
    for first, after, is_mask in filled:
        if not is_mask and after - first != 3:
            raise GraphRefused(f"--image {wiring.image} has {after - first} channels; pictures have three")
    return tuple(Part(is_mask, after - first if is_mask else 1) for first, after, is_mask in filled)


def _spans(wiring: Wiring, port: Port) -> Iterator[tuple[int, int, bool]]:
    for source, is_mask in ((wiring.image, False), (wiring.mask, True)):
        if source.name == port.name:
            usual = port.dims[1] or (1 if is_mask else 3)
            yield (*(source.channels or (0, usual)), is_mask)


def net_inputs(wiring: Wiring, image: Array, mask: Array) -> dict[str, Array]:
    """Convert a picture N×3×H×W in [0, 1] and a mask N×1×H×W, 1 = fill, to what the graph takes."""
    factor, term = IMAGE_SCALES[wiring.image_range]
    picture = (image[:, ::-1] if wiring.bgr else image) * np.float32(factor) + np.float32(term)
    if wiring.hole_value is not None:
        picture = picture * (1 - mask) + np.float32(wiring.hole_value) * mask
    factor, term = MASK_SCALES[wiring.mask_range]
    marks = (mask if wiring.mask_means == "hole" else 1 - mask) * np.float32(factor) + np.float32(term)
    feed = {}
    for port in wiring.ports.inputs:
        parts = [np.repeat(marks, part.copies, 1) if part.is_mask else picture for part in parts_of(wiring, port)]
        value = np.concatenate(parts, 1)
        value = value.transpose(0, 2, 3, 1) if port.layout == "nhwc" else value
        value = np.round(value) if "int" in port.dtype else value
        feed[port.name] = np.ascontiguousarray(value.astype(port.dtype))
    return feed


def contract_output(wiring: Wiring, result: Array) -> Array:
    """Convert the graph's result to N×3×H×W on the [0, 1] scale, FP32."""
    factor, term = IMAGE_SCALES[wiring.output_range]
    value = result.astype(np.float32)
    value = value.transpose(0, 3, 1, 2) if wiring.ports.layout == "nhwc" else value
    value = value[:, ::-1] if wiring.bgr else value
    scaled: Array = (value - np.float32(term)) / np.float32(factor)
    return scaled
