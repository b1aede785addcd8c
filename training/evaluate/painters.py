"""Who paints: an exported model through its engine, a checkpoint through torch, or OpenCV's classical methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from engines.base import Array, Engine
from engines.errors import ModelNotFound
from engines.load import EngineOptions, open_engine
from engines.manifest import Manifest, SizeRule, read_manifest
from export.checkpoint import load_strictly, read_checkpoint
from export.parity import torch_backend
from export.recognition import recognise
from training.evaluate.cases import Case, Pixels

Baseline = Literal["telea", "ns"]
BASELINES: tuple[Baseline, ...] = ("telea", "ns")
_RADIUS = 3
"""Pixels round a hole that OpenCV's methods look at: that of its documentation's example."""


class Painter(ABC):
    """Makes a case's picture: 8 bits, the truth's size, untouched outside the hole."""

    label: str

    @abstractmethod
    def paint(self, case: Case) -> Pixels: ...

    @abstractmethod
    def close(self) -> None:
        """Free what it holds; twice is allowed."""


class OpenCvPainter(Painter):
    """OpenCV's inpainting: Telea 2004 (fast marching) or Bertalmio et al. 2001 (Navier-Stokes)."""

    def __init__(self, label: Baseline) -> None:
        self.label = label
        self._method = {"telea": cv2.INPAINT_TELEA, "ns": cv2.INPAINT_NS}[label]

    def paint(self, case: Case) -> Pixels:
        if case.hole is None:
            return case.source
        painted: Any = cv2.inpaint(case.source, case.hole.astype(np.uint8), _RADIUS, self._method)
        return np.asarray(painted, np.uint8)

    def close(self) -> None:
        pass


class NetPainter(Painter):
    """Lays a case into a tile that the net takes, as the service does with `strategy=whole`, and cuts the result out.

    The picture is padded below and to the right by reflection, or resized where the model's rule is to resize.
    """

    label = "model"

    def __init__(self, size: SizeRule) -> None:
        self._size = size

    @abstractmethod
    def _run(self, feed: dict[str, Array]) -> Array:
        """The output 1×3×H×W for `image` 1×3×H×W in [0, 1] and `mask` 1×1×H×W."""

    def paint(self, case: Case) -> Pixels:
        height, width = case.truth.shape[:2]
        tile = _tile(self._size, height, width)
        feed = {"image": _planes(_into(case.source, tile, self._size.fit)) / np.float32(255)}
        if case.hole is not None:
            holes = _into(case.hole.astype(np.uint8), tile, self._size.fit)
            feed["mask"] = _planes(np.atleast_3d(holes)).astype(np.float32)
        painted = _cut_out(_pixels(self._run(feed)), height, width, self._size.fit)
        return painted if case.hole is None else np.where(case.hole[..., None], painted, case.source)


class EnginePainter(NetPainter):
    """An exported model, models/NAME/VERSION, in the engine that would serve it here.

    Raises:
        ModelError, EngineError: it cannot be read, or nothing here runs it.
    """

    def __init__(self, directory: Path, options: EngineOptions) -> None:
        self.manifest: Manifest = read_manifest(directory)
        self.engine: Engine = open_engine(directory, self.manifest, options)
        super().__init__(self.manifest.size)

    def _run(self, feed: dict[str, Array]) -> Array:
        return self.engine.infer({name: np.ascontiguousarray(array) for name, array in feed.items()})["output"]

    def close(self) -> None:
        self.engine.close()


class TorchPainter(NetPainter):
    """A checkpoint under torch FP32 on the CPU: for a look during training, not for figures of record.

    Raises:
        ExportError: it cannot be read, or no family recognises it.
    """

    def __init__(self, path: Path) -> None:
        found = recognise(read_checkpoint(path).parts, None, {})
        net = found.family.build(found.options)
        load_strictly(net, found.family.translate(found.state, found.options).state)
        self._backend = torch_backend(found.family.wrap(net, found.options).eval())
        super().__init__(found.family.interface(found.options).size)

    def _run(self, feed: dict[str, Array]) -> Array:
        return self._backend({name: np.ascontiguousarray(array) for name, array in feed.items()})

    def close(self) -> None:
        pass


def open_model(path: Path, options: EngineOptions) -> EnginePainter | TorchPainter:
    """A model's folder through the engine, a checkpoint file through torch.

    Raises:
        ModelNotFound: there is nothing at the path.
        ModelError, EngineError, ExportError: what is there cannot be run.
    """
    if path.is_dir():
        return EnginePainter(path, options)
    if path.is_file():
        return TorchPainter(path)
    raise ModelNotFound(f"{path}: no such model; give models/NAME/VERSION or a checkpoint file")


def _tile(size: SizeRule, height: int, width: int) -> tuple[int, int]:
    """The smallest tile that holds the picture; where none does, the next multiples, or the one size there is."""
    fitting = [tile for tile in size.buckets() if tile[0] >= height and tile[1] >= width]
    if fitting:
        return min(fitting, key=lambda tile: tile[0] * tile[1])
    if size.kind == "fixed":
        return size.height, size.width
    unit = size.multiple_of
    return -(-height // unit) * unit, -(-width // unit) * unit


def _into(values: NDArray[np.uint8], tile: tuple[int, int], fit: str) -> Any:
    height, width = values.shape[:2]
    if (height, width) == tile:
        return values
    if fit == "resize":
        how = cv2.INTER_CUBIC if values.ndim == 3 else cv2.INTER_NEAREST
        return cv2.resize(values, tile[::-1], interpolation=how)
    return cv2.copyMakeBorder(values, 0, tile[0] - height, 0, tile[1] - width, cv2.BORDER_REFLECT_101)


def _cut_out(painted: Pixels, height: int, width: int, fit: str) -> Pixels:
    if painted.shape[:2] != (height, width) and fit == "resize":
        resized: Any = cv2.resize(painted, (width, height), interpolation=cv2.INTER_CUBIC)
        return np.asarray(resized, np.uint8)
    return painted[:height, :width]


def _planes(values: Any) -> Array:
    planes: Array = values.transpose(2, 0, 1)[None]
    return planes


def _pixels(output: Array) -> Pixels:
    pixels: Pixels = np.rint(output[0].transpose(1, 2, 0).astype(np.float32).clip(0, 1) * 255).astype(np.uint8)
    return pixels
