"""Devices for tests: one that overlaps batches, and one with lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engines.cuda.api import Cuda
from engines.manifest import Manifest
from service.devices.contract import SerialDevice
from service.devices.cpu import CpuDevice
from service.devices.cpu_lanes import LaneDevice
from service.devices.gpu import GpuDevice
from service.devices.gpu_cvcuda import GpuPixels
from tests.fakes.clock import Clock
from tests.fakes.gpu import FakeCvCuda, RacingRuntime
from tests.fakes.lanes import FakeLaneEngine
from tests.service.devices.gpu_device import Gpu


@pytest.fixture
def open_gpu() -> Callable[..., Gpu]:
    def start(seed: int = 0, **options: Any) -> Gpu:
        runtime = RacingRuntime(seed)
        cuda, cvcuda = Cuda(runtime), FakeCvCuda(runtime)
        return Gpu(runtime, cvcuda, cuda, GpuDevice(cuda, GpuPixels(cvcuda), **options))

    return start


@pytest.fixture
def gpu(open_gpu: Callable[..., Gpu]) -> Gpu:
    return open_gpu()


@pytest.fixture
def engine(fake_manifest: Callable[..., Manifest]) -> FakeLaneEngine:
    return FakeLaneEngine(fake_manifest("facades", "translate"))


@pytest.fixture
def woken() -> list[str]:
    return []


@pytest.fixture
def clock() -> Clock:
    return Clock(0.0)


@pytest.fixture
def device(woken: list[str], clock: Clock) -> LaneDevice:
    return LaneDevice(SerialDevice(CpuDevice()), lambda: woken.append("woken"), clock)
