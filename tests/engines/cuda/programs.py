"""A small exported program, and an engine that opens it."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engines.base import BatchShape, blank_feed
from engines.cuda.inductor import PROGRAM_FILE, InductorEngine
from engines.manifest import Manifest, read_manifest
from tests.engines.conftest import conv_weight
from tests.untraced import untraced

torch = pytest.importorskip("torch", reason="torch is not installed; pip install -e '.[export]'")
TorchDispatchMode: Any = pytest.importorskip("torch.utils._python_dispatch").TorchDispatchMode


class Net(torch.nn.Module):  # type: ignore[name-defined]
    """The net of `conv_graph` in torch."""

    def __init__(self, gain: float = 1.0) -> None:
        super().__init__()
        self.register_buffer("weight", torch.from_numpy(conv_weight("inpaint", gain)))

    def forward(self, image: Any, mask: Any) -> Any:
        return torch.sigmoid(torch.nn.functional.conv2d(torch.cat([image, mask], 1), self.weight, padding=1))


@untraced
def write_program(directory: Path, gain: float = 1.0) -> None:
    batch, height, width = torch.export.Dim("b", max=64), torch.export.Dim.AUTO, torch.export.Dim.AUTO
    pixels = {0: batch, 2: height, 3: width}
    inputs = (torch.zeros(2, 3, 16, 24), torch.zeros(2, 1, 16, 24))
    program = torch.export.export(Net(gain).eval(), inputs, dynamic_shapes=(pixels, pixels))
    torch.export.save(program, directory / PROGRAM_FILE)


def open_it(directory: Path, cache: Path, **options: Any) -> InductorEngine:
    given = {"device": "cpu", "backend": "eager", "max_batch": 6, **options}
    return InductorEngine(directory, read_manifest(directory), cache_dir=cache, **given)


def feed_of(manifest: Manifest, batch: int, seed: int = 0, samples: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    feed = blank_feed(manifest, BatchShape(batch, 16, 16, samples))
    return {name: rng.random(array.shape, np.float32) for name, array in feed.items()}


def batches_of(engine: InductorEngine, side: int) -> list[int]:
    """Return the batch sizes compiled for tiles of `side`²."""
    return sorted(shape.batch for shape in engine._shapes if (shape.height, shape.width) == (side, side))


def memory(engine: InductorEngine, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return a view of the first values of an engine's tensor, by its address."""
    count = int(np.prod(shape))
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(engine.addresses[name])).reshape(shape)
