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
from engines.manifest import Manifest, read_manifest
from export.checkpoint import load_strictly, read_checkpoint
from export.generators.family import Interface
from export.parity import torch_backend
from export.recognition import recognise
from training.evaluate.cases import Case, Pixels
from training.evaluate.tiles import hole_tile, lay_out, picture_of_tile, picture_tile

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

    name: of the model, for messages.
    interface: its tensors, its task and its tiles.
    """

    label = "model"

    def __init__(self, name: str, interface: Interface) -> None:
        self.name = name
        self.interface = interface

    @abstractmethod
    def _run(self, feed: dict[str, Array]) -> Array:
        """The output 1×3×H×W for `image` 1×3×H×W in [0, 1] and `mask` 1×1×H×W."""

    def paint(self, case: Case) -> Pixels:
        size = case.truth.shape[0], case.truth.shape[1]
        layout = lay_out(self.interface.size, *size)
        feed = {"image": _planes(picture_tile(case.source, layout, self.interface.task)) / np.float32(255)}
        if case.hole is not None:
            feed["mask"] = _planes(hole_tile(case.hole, layout)[..., None]).astype(np.float32)
        painted = picture_of_tile(_pixels(self._run(feed)), layout, size)
        return painted if case.hole is None else np.where(case.hole[..., None], painted, case.source)


class EnginePainter(NetPainter):
    """An exported model, models/NAME/VERSION, in the engine that would serve it here.

    Raises:
        ModelError, EngineError: it cannot be read, or nothing here runs it.
    """

    def __init__(self, directory: Path, options: EngineOptions) -> None:
        self.manifest: Manifest = read_manifest(directory)
        self.engine: Engine = open_engine(directory, self.manifest, options)
        manifest = self.manifest
        super().__init__(manifest.key, Interface(manifest.task, manifest.inputs, manifest.output, manifest.size))

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
        super().__init__(str(path), found.family.interface(found.options))

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


def _planes(values: NDArray[np.uint8]) -> Array:
    planes: Array = values.transpose(2, 0, 1)[None]
    return planes


def _pixels(output: Array) -> Pixels:
    pixels: Pixels = np.rint(output[0].transpose(1, 2, 0).astype(np.float32).clip(0, 1) * 255).astype(np.uint8)
    return pixels
