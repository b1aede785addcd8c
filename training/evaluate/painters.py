"""The methods under evaluation: an exported model in its engine, a checkpoint in torch, or OpenCV's methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from engines.base import Array, Engine
from engines.engine_choice import EngineOptions, open_engine
from engines.errors import ModelNotFound
from engines.manifest import Manifest, read_manifest
from export.checkpoint import load_strictly, read_checkpoint
from export.generators.family import Interface
from export.parity import torch_backend
from export.recognition import recognise
from training.data.label_maps import connected_parts
from training.evaluate.cases import Case, Pixels
from training.evaluate.tiles import TilePlacement, hole_tile, ids_tile, lay_out, picture_of_tile, picture_tile

Baseline = Literal["telea", "ns"]
BASELINES: tuple[Baseline, ...] = ("telea", "ns")
_RADIUS = 3
"""The radius in pixels around a hole that OpenCV's methods use, as in the example of its documentation."""


class Painter(ABC):
    """A method that makes a case's result: 8 bits, the truth's size, unchanged outside the hole."""

    label: str

    @abstractmethod
    def paint(self, case: Case) -> Pixels: ...

    @abstractmethod
    def close(self) -> None:
        """Free the painter's memory; a second call does nothing."""


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
    """Puts a case into a tile, as the service does with `strategy=whole`, runs a net, and cuts out the result.

    name: the model's name, for messages.
    interface: the model's tensors, task and tile sizes.
    """

    label = "model"

    def __init__(self, name: str, interface: Interface) -> None:
        self.name = name
        self.interface = interface
        self._latent = next((spec for spec in interface.inputs if spec.name == "latent"), None)
        self.seed = 0
        """The seed of the random numbers, which are equal for all pictures."""

    @property
    def draws_numbers(self) -> bool:
        """Whether the net takes random numbers, so that another seed makes another picture."""
        return self._latent is not None

    @abstractmethod
    def _run(self, feed: dict[str, Array]) -> Array:
        """Map `image` 1×3×H×W in [0, 1] and `mask`, or `label` and `instance` 1×1×H×W, or `latent` 1×Z, to 1×3×H×W.

        With an image, the latent may be 1×1×Z and the output 1×1×3×H×W, for one sample.
        """

    def paint(self, case: Case) -> Pixels:
        size = case.truth.shape[0], case.truth.shape[1]
        placement = lay_out(self.interface.size, *size)
        output = self._run(self._feed(case, placement))
        painted = picture_of_tile(_pixels(output.reshape(1, *output.shape[-3:])), placement, size)
        return painted if case.hole is None else np.where(case.hole[..., None], painted, case.source)

    def _feed(self, case: Case, placement: TilePlacement) -> dict[str, Array]:
        """Return the net's inputs; the instances of a label map are the connected parts of its classes."""
        if case.labels is not None:
            ids: dict[str, NDArray[Any]] = {"label": case.labels}
            ids["instance"] = connected_parts(case.labels).astype(np.int32)
            taken = [spec.name for spec in self.interface.inputs]
            return {name: _planes(ids_tile(ids[name], placement)[..., None]) for name in taken}
        feed = {"image": _planes(picture_tile(case.source, placement, self.interface.task)) / np.float32(255)}
        if case.hole is not None:
            feed["mask"] = _planes(hole_tile(case.hole, placement)[..., None]).astype(np.float32)
        if self._latent is not None:  # equal for all models with this latent length
            shape = self._latent.shape
            numbers = np.random.default_rng(self.seed).standard_normal(int(shape[-1]), np.float32)
            feed["latent"] = numbers.reshape([1] * (len(shape) - 1) + [-1])
        return feed

    def draw(self, latent: Array) -> Pixels:
        """Generate a picture from Z random numbers."""
        return _pixels(self._run({"latent": latent[None]}))


class EnginePainter(NetPainter):
    """An exported model, models/NAME/VERSION, in the engine that would serve it on this host.

    Raises:
        ModelError, EngineError: the model cannot be read, or no engine on this host can run it.
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
    """A checkpoint in torch FP32 on the CPU: for checks during training, not for figures that are published.

    Raises:
        ExportError: the checkpoint cannot be read, or no family recognises it.
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
    """Open a model's folder in its engine, or a checkpoint file in torch.

    Raises:
        ModelNotFound: there is nothing at the path.
        ModelError, EngineError, ExportError: the model cannot be run.
    """
    if path.is_dir():
        return EnginePainter(path, options)
    if path.is_file():
        return TorchPainter(path)
    raise ModelNotFound(f"{path}: no such model; give models/NAME/VERSION or a checkpoint file")


def _planes(values: NDArray[Any]) -> Array:
    planes: Array = values.transpose(2, 0, 1)[None]
    return planes


def _pixels(output: Array) -> Pixels:
    pixels: Pixels = np.rint(output[0].transpose(1, 2, 0).astype(np.float32).clip(0, 1) * 255).astype(np.uint8)
    return pixels
