"""A rehearsal of what is to run on a GPU, on a GPU in host memory: nothing of it is a measurement."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks.gpu_pictures.cases import KINDS, make_cases
from benchmarks.gpu_pictures.window import check_faults, check_kernels, check_requests, measure_speed
from engines.cuda.api import Cuda
from engines.manifest import Manifest, MultipleSize
from service.devices.pictures.lane import PictureLane
from service.devices.pictures.lane_pool import LanePool
from service.devices.pictures.lane_thread import LaneOptions
from tests.fakes.cuda import FakeRuntime
from tests.fakes.jpeg_planes import FakePlanesDecoder
from tests.fakes.picture_kernels import COMPILER, EmulatedKernels, compile_kernels

MANIFEST = Path("models/photos/5/manifest.json")
PLAYED = tuple(kind for kind in KINDS if kind.startswith("4:") and kind != "4:2:2")
"""Kinds of files that the played decoder knows; it refuses 4:2:2."""


@pytest.fixture
def said() -> dict[str, Any]:
    return {}


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{number}.jpg" for number in range(3)]
    for number, path in enumerate(paths):
        noise = np.random.default_rng(number).integers(0, 256, (20, 30, 3), np.uint8)
        Image.fromarray(noise).resize((60, 40), Image.Resampling.BICUBIC).save(path, quality=92)
    return paths


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


@pytest.fixture
def open_lane_pool(tmp_path: Path, runtime: FakeRuntime) -> Callable[..., LanePool]:
    if COMPILER is None:
        pytest.skip("g++ is not installed")
    cuda, kernels = Cuda(runtime), EmulatedKernels(compile_kernels(tmp_path), runtime)

    def opened(lanes: int = 1, batch: int = 4, pictures: int = 8) -> LanePool:
        def lane(cuda: Cuda) -> PictureLane:
            return PictureLane(cuda, FakePlanesDecoder(runtime), kernels)

        return LanePool(cuda, lanes, LaneOptions(lane, batch, pictures, time.monotonic))

    return opened


def test_every_step_runs_and_says_what_it_found(
    open_lane_pool: Callable[..., LanePool],
    runtime: FakeRuntime,
    files: list[Path],
    said: dict[str, Any],
) -> None:
    served = Manifest.model_validate_json(MANIFEST.read_text())
    manifest = served.model_copy(update={"size": MultipleSize(multiple_of=32, sides=(32, 64))})  # an emulator is slow
    say = said.__setitem__
    check_kernels(open_lane_pool, files, manifest, say, 14)
    for kind in PLAYED:
        row = said[f"kernels, {kind}"]
        assert row["on_gpu"] == row["cases"] == 1
        assert max(row["tile_levels"], row["result_levels"]) <= 1
        assert row["masks_differ"] == row["outside_differ"] == 0
    for kind in ("progressive", "grey", "CMYK", "PNG", "PNG with alpha", "WebP"):
        assert said[f"kernels, {kind}"]["on_cpu"] == 1
    check_requests(open_lane_pool, files, manifest, say, 28, lambda: 0)
    assert said["requests, answered"] == [28, 28]
    assert not any(row["planned_though_refused"] for row in said.values() if "planned_though_refused" in row)
    check_faults(open_lane_pool, files, manifest, say, Cuda(runtime))
    assert said["faults, pool"] == "works"
    cases = [make() for make in make_cases(files, manifest, 4, ("4:2:0",))]
    measure_speed(open_lane_pool, {"small": cases}, say, 0.02, busy=False)
    assert len([name for name in said if name.startswith("speed, small, lanes")]) == 5
    assert json.dumps(said)
