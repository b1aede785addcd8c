"""A TensorRT engine on a fake device in host memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from engines.base import BatchShape, blank_feed
from engines.cuda.api import Cuda
from engines.manifest import read_manifest
from engines.trt.build import BuildOptions
from engines.trt.engine import TrtEngine
from tests.fakes.cuda import FakeRuntime
from tests.fakes.tensor_rt import FakeTensorRt

STYLES = ["8.6", "10", "rtx"]


class Bench:
    """A host with a fake device, a fake TensorRT and a cache folder."""

    def __init__(self, cache: Path, style: str = "10") -> None:
        self.device = FakeRuntime()
        self.trt = FakeTensorRt(self.device, style)
        self.cache = cache

    def open(self, directory: Path, **options: Any) -> TrtEngine:
        return TrtEngine(
            directory,
            read_manifest(directory),
            library=self.trt.library(),
            cuda=Cuda(self.device),
            cache_dir=self.cache,
            options=BuildOptions(**{"max_batch": 4, **options}),
        )

    def plans(self) -> list[Path]:
        return sorted((self.cache / "plans").iterdir())


def feed_of(engine: TrtEngine, batch: int = 1, seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    feed = blank_feed(engine.manifest, BatchShape(batch, 16, 16))
    return {name: rng.random(array.shape, np.float32) for name, array in feed.items()}
