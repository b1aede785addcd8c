"""A deterministic engine that needs no weights, for demos, tests and fault injection in the real service.

inpaint: the hole becomes the mean of the known pixels, plus a pattern made of the latent; translate: the negative, or
for label maps the ids themselves; generate: a pattern made of the latent. It reads the manifest alone, so a model
directory with only `manifest.json` is enough.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import numpy as np

from engines.base import Array, BatchShape, Engine, Feed, Outputs
from engines.errors import EngineDead, EngineFailed
from engines.feeds import batch_shape
from engines.manifest import FixedSize, Manifest

FAULT_FILE = "fake_fault"
"""Name of the file in the engine cache that injects a fault into the fake engine's next batch. See `FaultFile`."""


@dataclass(frozen=True, slots=True)
class Raise:
    """Make the batch raise this error; after EngineDead the engine stays dead."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Hang:
    """Block the batch until the event is set."""

    until: Event


@dataclass(frozen=True, slots=True)
class NotANumber:
    """Fill the batch's output with NaN."""


Fault = Raise | Hang | NotANumber


def no_fault(_feed: Feed) -> Fault | None:
    """Return no fault, ever."""
    return None


@dataclass(frozen=True, slots=True)
class FaultFile:
    """A file through which a test injects faults into engines of other processes.

    It holds one word: `raise`, `die`, `hang` or `nan`. The next batch of any engine consumes the file and suffers that
    fault. Write it under another name and rename it, so that it is never read half-written.
    """

    path: Path

    def __call__(self, _feed: Feed) -> Fault | None:
        try:
            word = self.path.read_text().strip()
            self.path.unlink()  # if two processes read it, only one can unlink it; the other raises
        except FileNotFoundError:
            return None
        faults: dict[str, Fault] = {
            "raise": Raise(EngineFailed("a fault on purpose")),
            "die": Raise(EngineDead("a fault on purpose")),
            "hang": Hang(Event()),
            "nan": NotANumber(),
        }
        return faults[word]


class FakeEngine(Engine):
    """An engine that computes a placeholder result with numpy, and counts its batches and samples.

    Args:
        manifest: task, tensors and size rule; checked as strictly as by a real engine.
        batch_s: seconds that a batch takes, however many samples it has; those of the warm-up take none.
        sleep: called with `batch_s`.
        fault: called before every batch; returns the fault to inject into it, or None.
    """

    name = "fake"
    device = "cpu"
    precision = "fp32"

    def __init__(
        self,
        manifest: Manifest,
        *,
        batch_s: float = 0.0,
        sleep: Callable[[float], None] = time.sleep,
        fault: Callable[[Feed], Fault | None] = no_fault,
    ) -> None:
        self.manifest = manifest
        self.batches = 0
        """Batches that were started, including those that failed."""
        self.samples = 0
        """Samples in those batches."""
        self.batch_s = batch_s
        self._sleep = sleep
        self.fault = fault
        self.dead: str | None = None
        """The reason why the engine cannot be used again; None while it can."""

    def infer(self, feed: Feed) -> Outputs:
        if self.dead is not None:
            raise EngineDead(f"{self.manifest.key} on fake {self.dead}; load a new engine")
        shape = batch_shape(self.manifest, feed)
        self.batches += 1
        self.samples += shape.batch
        fault = self.fault(feed)
        if self.batch_s > 0:
            self._sleep(self.batch_s)
        if isinstance(fault, Hang):
            fault.until.wait()
        if isinstance(fault, Raise):
            if isinstance(fault.error, EngineDead):
                self.dead = "died"
            raise fault.error
        output = self._compute(feed, shape)
        if isinstance(fault, NotANumber):
            output.fill(np.nan)
        return {"output": output}

    def warm_up(self, shapes: Iterable[BatchShape]) -> None:
        """Run a batch of each shape without waiting `batch_s`: the fake engine has nothing to prepare."""
        batch_s, self.batch_s = self.batch_s, 0.0
        try:
            super().warm_up(shapes)
        finally:
            self.batch_s = batch_s

    def close(self) -> None:
        self.dead = "is closed"

    def _compute(self, feed: Feed, shape: BatchShape) -> Array:
        channels = self.manifest.output_channels
        if self.manifest.task == "generate":
            generated: Array = 0.5 + _latent_picture(feed["latent"], channels, shape, 0.5)
            return generated
        if "label" in feed:
            return _ids_as_picture(feed, channels)
        image = feed["image"][:, np.arange(channels) % self.manifest.image_channels]
        if self.manifest.task == "translate":
            return np.subtract(1, image, dtype=np.float32)
        hole = feed["mask"] >= 0.5 if "mask" in feed else _fixed_hole(self.manifest, image)
        filled = _fill_with_mean(image, hole)
        if "latent" not in feed:
            return filled
        noise = _latent_picture(feed["latent"], channels, shape, 0.25)
        if self.manifest.samples_together:
            filled, hole = filled[:, None], hole[:, None]
        return np.where(hole, filled + noise, filled).astype(np.float32)


def _latent_picture(latent: Array, channels: int, shape: BatchShape, gain: float) -> Array:
    """Return N×(S×)C×H×W in ±gain: the latent's values repeated along the rows, shifted by one in each channel."""
    pixel = np.arange(shape.height * shape.width).reshape(1, shape.height, shape.width)
    index = (pixel + np.arange(channels)[:, None, None]) % latent.shape[-1]
    picture: Array = (gain * np.tanh(latent)[..., index]).astype(np.float32)
    return picture


def _ids_as_picture(feed: Feed, channels: int) -> Array:
    """Return N×C×H×W of bytes / 255: class id, low and high byte of the instance id (0 without), repeated."""
    instance = feed.get("instance", np.zeros_like(feed["label"], np.int32))
    planes = np.concatenate((feed["label"], instance & 255, instance >> 8 & 255), axis=1)
    picture: Array = planes[:, np.arange(channels) % 3].astype(np.float32)
    picture /= 255
    return picture


def _fixed_hole(manifest: Manifest, image: Array) -> Array:
    """Return the hole of a model without a mask: the part of the tile that it always fills."""
    hole = np.zeros((len(image), 1, *image.shape[2:]), np.bool_)
    if isinstance(manifest.size, FixedSize) and manifest.size.hole is not None:
        top, left, bottom, right = manifest.size.hole
        hole[:, :, top:bottom, left:right] = True
    return hole


def _fill_with_mean(image: Array, hole: Array) -> Array:
    """Return N×C×H×W with the hole (N×1×H×W) set to the mean of the sample's other pixels, 0.5 where there are none."""
    kept = np.count_nonzero(~hole, axis=(2, 3), keepdims=True)
    total = np.where(hole, 0, image).sum(axis=(2, 3), keepdims=True, dtype=np.float64)
    mean = np.where(kept > 0, total / np.maximum(kept, 1), 0.5)
    return np.where(hole, mean, image).astype(np.float32)
