"""Chooses the scales of a graph's convolutions from the values of their inputs.

The pictures are run twice. The first run finds the largest magnitude of every channel, which gives the factors that
equalise the channels. The second makes a histogram of the equalised magnitudes, which gives the limit. Memory does not
grow with the number of pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from export.int8.graph import INT8_MAX, Convolution, InputScale, convolutions

Feed = Mapping[str, NDArray[Any]]
Feeds = Callable[[], Iterable[Feed]]
"""Yields the same inputs at every call, one picture at a time."""
Calibrate = Callable[[Path, Feeds, Path, Callable[[str], None]], dict[str, InputScale]]
"""The type of `calibrate` and of other functions that choose the scales."""
_BINS = 2048
_MIN_PEAK = 1e-6
_EVENNESS = 0.5
"""A channel is divided by this power of its largest magnitude: 0 leaves the channels uneven, 1 makes all alike."""
_LIMITS = np.linspace(0.05, 1.0, 96)


def calibrate(graph: Path, feeds: Feeds, watch: Path, notify: Callable[[str], None]) -> dict[str, InputScale]:
    """Choose the scale of every convolution's input, by the name of its node.

    Args:
        graph: the FP32 graph.
        feeds: the pictures to calibrate on.
        watch: path for a copy of the graph that also outputs these inputs; its folder exists.
        notify: called with a line for each picture.
    """
    layers = convolutions(onnx.load(graph))
    session = _watched(graph, [layer.input for layer in layers], watch)
    peaks = _peaks(session, layers, feeds, notify)
    factors = {name: _factors(peak) for name, peak in peaks.items()}
    tops = {name: float((peaks[name] / factors[name]).max()) for name in peaks}
    counts = {name: np.zeros(_BINS, np.int64) for name in peaks}
    for index, feed in enumerate(feeds()):
        notify(f"ranges, picture {index + 1}")
        for name, values in _values(session, layers, feed):
            even = np.abs(values) / factors[name][:, None]
            counts[name] += np.histogram(even, bins=_BINS, range=(0, tops[name]))[0]
    return {
        name: InputScale(
            best_limit(counts[name], tops[name]), factors[name], int(counts[name].sum()) // len(peaks[name])
        )
        for name in peaks
    }


def best_limit(counts: NDArray[np.int64], top: float) -> float:
    """Return the limit with the smallest mean square error of rounding and saturation together.

    Args:
        counts: number of magnitudes in each of equally wide bins from 0 to `top`.
        top: the largest magnitude.
    """
    centres = (np.arange(len(counts)) + 0.5) * top / len(counts)

    def error(limit: float) -> float:
        step = limit / INT8_MAX
        rounded = np.where(centres < step / 2, centres**2, step**2 / 12)
        return float((np.where(centres <= limit, rounded, (centres - limit) ** 2) * counts).sum())

    return float(min(_LIMITS * top, key=error))


def _factors(peak: NDArray[np.float32]) -> NDArray[np.float32]:
    factors = np.maximum(peak, _MIN_PEAK * max(1.0, float(peak.max()))) ** _EVENNESS
    even: NDArray[np.float32] = (factors / factors.mean()).astype(np.float32)
    return even


def _peaks(
    session: Any, layers: Sequence[Convolution], feeds: Feeds, notify: Callable[[str], None]
) -> dict[str, NDArray[np.float32]]:
    """Return the largest magnitude of each input channel, at least `_MIN_PEAK`, by layer."""
    peaks: dict[str, NDArray[np.float32]] = {}
    for index, feed in enumerate(feeds()):
        notify(f"channels, picture {index + 1}")
        for name, values in _values(session, layers, feed):
            peak = np.maximum(np.abs(values).max(1), _MIN_PEAK)
            peaks[name] = np.maximum(peaks.get(name, peak), peak)
    return peaks


def _values(session: Any, layers: Sequence[Convolution], feed: Feed) -> Iterable[tuple[str, NDArray[np.float32]]]:
    """Yield each layer's input as C×(N·H·W)."""
    names = list(dict.fromkeys(layer.input for layer in layers))
    found = dict(zip(names, session.run(names, dict(feed)), strict=True))
    for layer in layers:
        values = found[layer.input]
        yield layer.name, np.moveaxis(values, 1, 0).reshape(values.shape[1], -1)


def _watched(graph: Path, tensors: Sequence[str], target: Path) -> Any:
    """Return a session of a copy of the graph, written to `target`, that outputs these tensors."""
    model = onnx.load(graph)
    outputs = {value.name for value in model.graph.output}
    for name in dict.fromkeys(tensors):
        if name not in outputs:
            model.graph.output.append(onnx.ValueInfoProto(name=name))
    onnx.save(model, target)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.enable_cpu_mem_arena = False  # tiles of many sizes would each keep their memory
    return onnxruntime.InferenceSession(str(target), options, providers=["CPUExecutionProvider"])
