"""The overlapping device on a fake CUDA, and models and samples for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from engines.base import BatchShape
from engines.cuda.api import Cuda
from engines.manifest import Manifest
from service.core.batch_rows import Sample
from service.core.pictures import Size
from service.devices.contract import Tiles
from service.devices.gpu import GpuDevice
from tests.fakes.gpu import FakeCvCuda, FakeStreamEngine, RacingRuntime

MAX_SHAPE = BatchShape(8, 64, 64)


PIXELS = ["batch", 3, "height", "width"]


MakeManifest = Callable[..., Manifest]


@dataclass
class Gpu:
    """A GPU device and the fakes that it runs on."""

    runtime: RacingRuntime
    cvcuda: FakeCvCuda
    cuda: Cuda
    device: GpuDevice

    def engine(self, manifest: Manifest, max_shape: BatchShape = MAX_SHAPE) -> FakeStreamEngine:
        return FakeStreamEngine(manifest, self.cuda, max_shape)


def manifests(make: MakeManifest) -> dict[str, Manifest]:
    """Return manifests with every kind of input and output in the tensor contract."""
    latent = {"name": "latent", "dtype": "float32", "shape": ["batch", 8]}
    image = {"name": "image", "dtype": "float32", "shape": PIXELS}
    mask = {"name": "mask", "dtype": "float32", "shape": ["batch", 1, "height", "width"]}
    label = {"name": "label", "dtype": "uint8", "shape": ["batch", 1, "height", "width"], "classes": 7}
    instance = {"name": "instance", "dtype": "int32", "shape": ["batch", 1, "height", "width"]}
    grey = {"dtype": "float32", "shape": ["batch", 1, "height", "width"]}
    together = {"name": "latent", "dtype": "float32", "shape": ["batch", "samples", 8]}
    several = {"name": "output", "dtype": "float32", "shape": ["batch", "samples", 3, "height", "width"]}
    fixed = {"kind": "fixed", "height": 32, "width": 64}
    return {
        "inpaint": make("inpaint", "inpaint", size={"kind": "multiple", "multiple_of": 8, "sides": [16, 24, 64]}),
        "translate": make("translate", "translate"),
        "grey": make("grey", "translate", inputs=[{"name": "image", **grey}], output={"name": "output", **grey}),
        "generate": make("generate", "generate", inputs=[latent], size=fixed),
        "label": make("label", "translate", inputs=[label, instance]),
        "diverse": make("diverse", "inpaint", inputs=[image, mask, together], output=several),
    }


def random_samples(manifest: Manifest, rng: np.random.Generator, batch: int) -> list[Sample]:
    buckets = [bucket for bucket in manifest.size.tile_sizes() if max(bucket) <= 64]
    tile = Size(*buckets[rng.integers(len(buckets))])
    several = 2 if manifest.samples_together else 1
    return [Sample(tile, _arrays(manifest, rng, tile, several), several) for _ in range(batch)]


def _arrays(manifest: Manifest, rng: np.random.Generator, tile: Size, several: int) -> dict[str, np.ndarray]:
    kinds: dict[str, Callable[[], np.ndarray]] = {
        "image": lambda: rng.integers(0, 256, (*tile, manifest.image_channels), np.uint8),
        "mask": lambda: rng.integers(0, 2, tile, np.uint8),
        "label": lambda: rng.integers(0, 7, tile, np.uint8),
        "instance": lambda: rng.integers(0, 70000, tile, np.int32),
        "latent": lambda: rng.standard_normal((several, 8) if manifest.samples_together else 8, np.float32),
    }
    return {spec.name: kinds[spec.name]() for spec in manifest.inputs}


def assert_same(tiles: Tiles, wanted: Tiles) -> None:
    assert len(tiles) == len(wanted)
    for tile, reference in zip(tiles, wanted, strict=True):
        assert tile is not None
        assert reference is not None
        assert tile.dtype == np.uint8
        assert tile.shape == reference.shape
        assert np.abs(tile.astype(int) - reference.astype(int)).max() <= 1
