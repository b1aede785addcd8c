"""A host with a GPU is told what it has and what it lacks; one without is told once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from engines.cuda import Device
from engines.errors import EngineUnavailable
from retouch.gpu_checks import GpuFact, GpuHost, gpu_facts, is_installed


def gpu_host(**parts: Any) -> GpuHost:
    device = Device("NVIDIA L4", (8, 9), 12080, 24 << 30)
    whole = {
        "is_here": lambda: True,
        "open_cuda": lambda: SimpleNamespace(device=device),
        "load_tensorrt": lambda: SimpleNamespace(name="TensorRT 10.9.0"),
        "has_module": lambda _name: True,
    }
    return GpuHost(**{**whole, **parts})


def missing() -> Any:
    raise EngineUnavailable("it is not installed; pip install it")


def test_gpu_is_described_with_its_libraries():
    assert gpu_facts(gpu_host()) == [
        GpuFact("GPU", True, "NVIDIA L4, capability 8.9, 24 GiB, driver for CUDA 12.8"),
        GpuFact("TensorRT", True, "TensorRT 10.9.0"),
        GpuFact("CV-CUDA", True, "installed"),
    ]


def test_each_missing_part_comes_with_its_remedy():
    facts = gpu_facts(gpu_host(open_cuda=missing, load_tensorrt=missing, has_module=lambda _name: False))
    assert [fact.is_fine for fact in facts] == [False] * 3
    assert [fact.detail for fact in facts] == [
        "it is not installed; pip install it",
        "it is not installed; pip install it",
        "not installed: pictures are prepared on the processor; pip install -e '.[gpu]'",
    ]


def test_host_without_a_gpu_gets_one_line_and_loads_nothing():
    facts = gpu_facts(gpu_host(is_here=lambda: False, open_cuda=None, load_tensorrt=None, has_module=None))
    assert facts == [GpuFact("GPU", True, "no NVIDIA GPU here; the processor computes")]


def test_modules_are_looked_for_without_being_imported():
    assert is_installed("json.tool")
    assert not is_installed("surely_not_installed")
    assert not is_installed("surely_not_installed.nvimgcodec")
