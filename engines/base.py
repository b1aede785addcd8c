"""The contract that every runtime fulfils; one contract test runs against all of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engines.manifest import Manifest

Array = NDArray[Any]
Feed = Mapping[str, Array]
Outputs = dict[str, Array]


class BatchShape(NamedTuple):
    """What a batch looks like to an engine: how many rows, of which tile size in pixels, and samples of each row."""

    batch: int
    height: int
    width: int
    samples: int = 1
    """1 but for models whose `latent` has that dimension."""


class Engine(ABC):
    """A compiled model on one device.

    One thread uses an engine: the device worker. `infer` is never called twice at once.
    """

    name: str
    """`openvino`, `onnxrt`, `fake`, …: the value of the X-Engine header together with `precision`."""
    device: str
    """`cpu`, `cuda:0`, …"""
    precision: str
    """What it computes in: `fp32`, `bf16`, `fp16`."""
    manifest: Manifest
    note: str = ""
    """Why it computes in that precision, for people; empty where there was nothing to decide."""

    @abstractmethod
    def infer(self, feed: Feed) -> Outputs:
        """Run one batch.

        Args:
            feed: the manifest's inputs by name, with the shapes and dtypes of the tensor contract, C-contiguous.
                They stay the caller's: the engine is done with them when it returns.

        Returns:
            `{"output": float32 N×C×H×W}`, or N×S×C×H×W where the manifest says so. The buffer is the ENGINE'S: it may
            be overwritten by the next `infer`, so the caller copies what it keeps.

        Raises:
            EngineFailed: this batch failed; the engine can be used again.
            EngineDead: the engine cannot be used again.
        """

    @abstractmethod
    def close(self) -> None:
        """Free what the engine holds; calling it twice is allowed."""

    def warm_up(self, shapes: Iterable[BatchShape]) -> None:
        """Run each shape once, so that the first request pays for nothing."""
        for shape in shapes:
            self.infer(blank_feed(self.manifest, shape))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.manifest.key} {self.precision} on {self.device}>"


WarmUpShapes = Callable[[Engine], Iterable[BatchShape]]
"""The shapes that an engine runs once before it serves."""


def warmed_up(engine: Engine, shapes: WarmUpShapes) -> Engine:
    """The same engine once it has run its shapes; one that cannot is closed.

    Raises:
        EngineFailed, EngineDead: as its `infer`.
    """
    try:
        engine.warm_up(shapes(engine))
    except BaseException:
        engine.close()
        raise
    return engine


def blank_feed(manifest: Manifest, shape: BatchShape) -> Feed:
    """Zeros of the shapes that the manifest asks for; `mask` is a hole in the left half."""
    sizes = shape._asdict()
    feed: dict[str, Array] = {
        spec.name: np.zeros([d if isinstance(d, int) else sizes[d] for d in spec.shape], spec.dtype)
        for spec in manifest.inputs
    }
    if "mask" in feed:
        feed["mask"][..., : shape.width // 2] = 1
    return feed
