"""The interface of every runtime; one contract test (tests/engines/test_contract.py) runs against all of them."""

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
    """The shape of a batch: number of rows, height and width of the tiles in pixels, and samples per row."""

    batch: int
    height: int
    width: int
    samples: int = 1
    """Results for each row; more than 1 only for models whose `latent` has the dimension `samples`."""


class Engine(ABC):
    """A compiled model on one device.

    One thread uses an engine: the device worker. `infer` is never called twice at once.
    """

    name: str
    """The value of the X-Engine header, together with `precision`: `openvino`, `onnxrt`, `fake`, …."""
    device: str
    """The device that it runs on: `cpu`, `cuda:0`, …."""
    precision: str
    """The number format that it computes in: `fp32`, `bf16` or `fp16`."""
    manifest: Manifest
    note: str = ""
    """The reason for that precision and, after a race, for this engine, for people; may be empty."""

    @abstractmethod
    def infer(self, feed: Feed) -> Outputs:
        """Run one batch.

        Args:
            feed: the manifest's inputs by name, with the shapes and dtypes of the tensor contract, C-contiguous.
                The arrays stay the caller's; the engine does not read them after it returns.

        Returns:
            `{"output": float32 N×C×H×W}`, or N×S×C×H×W where the manifest says so. The buffer is the ENGINE'S: it may
            be overwritten by the next `infer`, so the caller copies what it keeps.

        Raises:
            EngineFailed: this batch failed; the engine can be used again.
            EngineDead: the engine cannot be used again.
        """

    @abstractmethod
    def close(self) -> None:
        """Free the engine's memory; a second call does nothing."""

    def warm_up(self, shapes: Iterable[BatchShape]) -> None:
        """Run a batch of each shape once, so that no request has to wait for compilation or allocation."""
        for shape in shapes:
            self.infer(blank_feed(self.manifest, shape))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.manifest.key} {self.precision} on {self.device}>"


WarmUpShapes = Callable[[Engine], Iterable[BatchShape]]
"""Returns the batch shapes that an engine runs once before it serves."""


def warm_up_engine(engine: Engine, shapes: WarmUpShapes) -> Engine:
    """Return the same engine after it has run its warm-up shapes; if one of them fails, the engine is closed."""
    try:
        engine.warm_up(shapes(engine))
    except BaseException:
        engine.close()
        raise
    return engine


def blank_feed(manifest: Manifest, shape: BatchShape) -> Feed:
    """Make a feed of zeros in the shapes of the manifest; where there is a `mask`, its left half is 1 (a hole)."""
    sizes = shape._asdict()
    feed: dict[str, Array] = {
        spec.name: np.zeros([d if isinstance(d, int) else sizes[d] for d in spec.shape], spec.dtype)
        for spec in manifest.inputs
    }
    if "mask" in feed:
        feed["mask"][..., : shape.width // 2] = 1
    return feed
