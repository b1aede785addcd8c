"""Runs a foreign graph on a photograph with a hole and states in sentences what contradicts a wiring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx
import onnxruntime
from PIL import Image, ImageFilter

from export.errors import GraphRefused
from export.foreign.wiring import Array, Wiring, contract_output, net_inputs

_BLEND_DISTANCE, _CORE_DISTANCE = 8, 5
"""Distance in pixels from the hole's edge beyond which known and masked pixels are free of blending."""
_UNCHANGED = 2.5 / 255
_INDEPENDENT, _DEPENDENT = 1.5 / 255, 2 / 255


@dataclass(frozen=True)
class Probe:
    """A photograph 1×3×H×W in [0, 1] and a mask 1×1×H×W, 1 = fill."""

    image: Array
    mask: Array


class Net:
    """A graph in ONNX Runtime on the CPU.

    Raises:
        GraphRefused: the runtime cannot load the graph.
    """

    def __init__(self, model: onnx.ModelProto, output: str) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._output = output
        try:
            self._session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # ONNX Runtime raises many unrelated types
            raise GraphRefused(f"ONNX Runtime cannot load the graph: {_first_line(error)}") from error

    def run(self, feed: Mapping[str, Array]) -> Array:
        """Compute the result for tensors by name.

        Raises:
            GraphRefused: the runtime cannot compute it.
        """
        try:
            result: Array = self._session.run([self._output], dict(feed))[0]
        except Exception as error:  # as above
            sizes = ", ".join(f"{name} {'×'.join(map(str, value.shape))}" for name, value in feed.items())
            raise GraphRefused(f"the graph fails on {sizes}: {_first_line(error)}") from error
        return result


class Observed:
    """Results of the graph for one wiring and probe; those with changed pixels are computed on first use."""

    def __init__(self, net: Net, wiring: Wiring, probe: Probe) -> None:
        self._net, self._wiring = net, wiring
        self.probe = probe
        self.plain = self._run(probe.image)

    @cached_property
    def other_hidden(self) -> Array:
        """The result with other pixels under the mask."""
        image, mask = self.probe.image, self.probe.mask
        return self._run(np.where(mask > 0, 1 - image[:, :, ::-1, ::-1], image))

    @cached_property
    def other_known(self) -> Array:
        """The result with other known pixels."""
        image, mask = self.probe.image, self.probe.mask
        return self._run(np.where(mask > 0, image, 1 - image))

    def _run(self, image: Array) -> Array:
        return self._net.run(net_inputs(self._wiring, np.asarray(image, np.float32), self.probe.mask))


def shows_known(observed: Observed) -> bool:
    """Return whether the probe has known pixels away from the hole; a small tile may have none."""
    return bool(_away(observed).any())


def keeps_known(wiring: Wiring, observed: Observed) -> bool:
    """Return whether pixels away from the hole come back unchanged: the graph composites. False if there are none."""
    value = contract_output(wiring, observed.plain)
    away = _away(observed)
    if value.shape != observed.probe.image.shape or not away.any():
        return False
    change = np.abs(value - observed.probe.image).max(1, keepdims=True)[away]
    return float(np.quantile(change, 0.999)) <= _UNCHANGED


def find_faults(wiring: Wiring, observed: Observed, *, composites: bool | None) -> list[str]:
    """Return the reasons against a wiring, a sentence each; empty if the results are those of an inpainting net.

    Args:
        wiring: the wiring that the results were computed with.
        observed: the results.
        composites: whether the graph is declared to return known pixels unchanged; None if that is not declared.
    """
    image, mask = observed.probe.image, observed.probe.mask
    value = contract_output(wiring, observed.plain)
    if value.shape != image.shape:
        return [f"the result is {'×'.join(map(str, value.shape))} instead of {'×'.join(map(str, image.shape))}"]
    if not np.isfinite(value).all():
        return ["the result has NaN or infinity"]
    if faults := _range_faults(wiring, value):
        return faults
    kept = keeps_known(wiring, observed)
    if composites and not kept and shows_known(observed):
        faults.append("known pixels come back changed, so the graph does not composite (--composite outside)")
    if not kept:
        faults += _seam_faults(value, image, mask)
    core = _core(mask)
    other_hidden, other_known = (contract_output(wiring, x) for x in (observed.other_hidden, observed.other_known))
    if _difference(other_hidden, value, core) > _INDEPENDENT:
        faults.append("the fill depends on what is under the mask (--mask-means, or --hole-value 0)")
    elif _difference(other_known, value, core) < _DEPENDENT:
        faults.append("the fill does not depend on the picture round it (--mask-means)")
    return faults


def _away(observed: Observed) -> Array:
    away: Array = _grown(observed.probe.mask, _BLEND_DISTANCE) == 0
    return away


def _range_faults(wiring: Wiring, value: Array) -> list[str]:
    low, high = float(value.min()), float(value.max())
    if float(np.mean((value < -0.1) | (value > 1.1))) > 0.02:
        return [f"read as {wiring.output_range}, the result lies between {low:.3g} and {high:.3g} of white"]
    if high - low < 0.05:
        return [f"read as {wiring.output_range}, the result is flat: between {low:.3g} and {high:.3g} of white"]
    return []


def _seam_faults(value: Array, image: Array, mask: Array) -> list[str]:
    known = 1 - mask
    weight = _blurred(known)
    nearby = _blurred(image * known) / np.maximum(weight, 1e-3)
    rim = np.broadcast_to((mask > 0) & (weight > 0.2), image.shape)
    if not rim.any():
        return []
    jump, natural = (float(np.abs(x - nearby)[rim].mean()) for x in (value, image))
    if jump <= 2 * natural + 0.06:
        return []
    return [f"at its edge the fill differs from the picture by {jump:.2f} of white on average"]


def _difference(one: Array, other: Array, where: Array) -> float:
    return float(np.abs(one - other).max(1, keepdims=True)[where].mean())


def _core(mask: Array) -> Array:
    core = _grown(1 - mask, _CORE_DISTANCE) == 0
    return core if core.any() else mask > 0


def _grown(mask: Array, pixels: int) -> Array:
    """Return the mask, 1×1×H×W, grown by a square of that many pixels to each side."""
    picture = Image.fromarray((mask[0, 0] * 255).astype(np.uint8)).filter(ImageFilter.MaxFilter(2 * pixels + 1))
    return np.asarray(picture)[None, None] > 0


def _blurred(planes: Array) -> Array:
    return np.stack([_box_mean(plane) for plane in planes[0]])[None]


def _box_mean(plane: Array) -> Array:
    """Return the mean of the 7×7 pixels round each pixel; the border is repeated."""
    sums = np.pad(plane, 4, mode="edge").cumsum(0).cumsum(1)
    mean: Array = (sums[7:, 7:] - sums[:-7, 7:] - sums[7:, :-7] + sums[:-7, :-7]) / 49
    return mean[: plane.shape[0], : plane.shape[1]]


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
