"""The choice of the layers that stay in higher precision: each is measured alone, then the fewest are chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import onnx
from numpy.typing import NDArray

from engines.manifest import QuantisedLayer
from export.errors import QuantisationRefused
from export.int8.calibrating import Feed, Feeds
from export.int8.gate import refusal
from export.int8.graph import Convolution, InputScale, convolutions, to_int8
from export.parity import onnx_backend

MARGIN_MEAN_DB, MARGIN_WORST_DB = 0.5, 4.5
"""Added to the gate's bars when layers are chosen. The gate measures other and more pictures: the worst of its 100 lost
2.4 to 4.7 dB more than the worst of the 64 that layers were chosen on (docs/measurements/int8.md)."""
RANKED_ON = 24
"""Tiles on which each layer is measured alone; how many layers are kept is decided on all."""
_MIN_ERROR = 1e-12


@dataclass(frozen=True, slots=True)
class Quality:
    """PSNR in the holes against FP32: the mean of the pictures and the worst one, in dB."""

    mean_db: float
    worst_db: float

    def reaches(self, mean_db: float, worst_db: float) -> bool:
        """Return whether mean and worst PSNR are at least these bars, in dB."""
        return self.mean_db >= mean_db and self.worst_db >= worst_db


@dataclass(frozen=True, slots=True)
class ChosenLayers:
    """The INT8 graph, the layers by their own noise (most first), and the names of those in higher precision."""

    model: onnx.ModelProto
    layers: tuple[QuantisedLayer, ...]
    kept: tuple[str, ...]


def hole_psnr_db(found: NDArray[np.float32], wanted: NDArray[np.float32], mask: NDArray[np.float32]) -> float:
    """Return the PSNR over the masked pixels, peak 1.0; at most 120 dB."""
    inside = np.broadcast_to(mask > 0, found.shape)
    error = float(np.mean(np.square(found[inside].astype(np.float64) - wanted[inside])))
    return -10 * math.log10(max(error, _MIN_ERROR))


class Measured:
    """Measures rewritten graphs against the FP32 graph's outputs on pictures, which stay in memory."""

    def __init__(self, graph: Path, feeds: Iterable[Feed], scratch: Path) -> None:
        self._scratch = scratch
        self._feeds = list(feeds)
        reference = onnx_backend(graph)
        self._wanted = [reference(feed) for feed in self._feeds]

    def psnr_db(self, model: onnx.ModelProto, count: int | None = None) -> list[float]:
        """Return the PSNR of each picture, or of the first `count`."""
        onnx.save(model, self._scratch)
        run = onnx_backend(self._scratch)
        pairs = zip(self._feeds[:count], self._wanted[:count], strict=True)
        return [hole_psnr_db(run(feed), wanted, feed["mask"]) for feed, wanted in pairs]


def choose_layers(
    graph: Path,
    scales: Mapping[str, InputScale],
    feeds: Feeds,
    scratch: Path,
    bars: tuple[float, float],
    notify: Callable[[str], None],
) -> ChosenLayers:
    """Quantise the graph; keep as few multiplications as the bars allow in higher precision.

    Layers are kept in the order of their noise per multiplication; how many is found by bisection. A layer's noise is
    its mean square error, which the pictures that it damages most dominate.

    Args:
        graph: the FP32 graph.
        scales: the scale of every layer's input, by the layer's name.
        feeds: the pictures to choose on.
        scratch: a file that may be overwritten.
        bars: the gate's, mean and worst PSNR in dB.
        notify: called with a line for each layer and each try.

    Raises:
        QuantisationRefused: no layer can be quantised within the bars.
    """
    model, measured = onnx.load(graph), Measured(graph, feeds(), scratch)
    layers = [layer for layer in convolutions(model) if layer.name in scales]
    noise: dict[str, float] = {}
    for index, layer in enumerate(layers):
        notify(f"layer {index + 1} of {len(layers)}: {layer.name}")
        found = measured.psnr_db(to_int8(model, {layer.name: scales[layer.name]}), RANKED_ON)
        noise[layer.name] = fmean(10 ** (-psnr / 10) for psnr in found)
    order = sorted(layers, key=lambda layer: noise[layer.name] / multiplications(layer, scales), reverse=True)

    def quality(kept: int) -> Quality:
        found = measured.psnr_db(to_int8(model, {layer.name: scales[layer.name] for layer in order[kept:]}))
        notify(f"{kept} layers kept: {fmean(found):.1f} dB on average, {min(found):.1f} at worst")
        return Quality(fmean(found), min(found))

    kept = fewest(len(order), lambda kept: quality(kept).reaches(bars[0] + MARGIN_MEAN_DB, bars[1] + MARGIN_WORST_DB))
    by_noise = tuple(
        QuantisedLayer(name=layer.name, alone_db=round(-10 * math.log10(max(noise[layer.name], _MIN_ERROR)), 1))
        for layer in sorted(layers, key=lambda layer: noise[layer.name], reverse=True)
    )
    if kept is None:
        raise QuantisationRefused(refusal("no layer can be quantised within the bars", by_noise))
    names = tuple(layer.name for layer in order[:kept])
    return ChosenLayers(to_int8(model, {layer.name: scales[layer.name] for layer in order[kept:]}), by_noise, names)


def fewest(limit: int, enough: Callable[[int], bool]) -> int | None:
    """Return the smallest number below `limit` that is enough, by bisection; None if none is."""
    low, high = 0, limit
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return low if low < limit else None


def multiplications(layer: Convolution, scales: Mapping[str, InputScale]) -> int:
    """Count the multiplications of a layer on the calibration pictures."""
    return math.prod(layer.shape) * scales[layer.name].positions // layer.stride
