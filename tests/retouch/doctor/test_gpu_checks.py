"""A host with a GPU gets a line for each part; one without gets a single line."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from engines.cuda.api import Device
from engines.errors import EngineUnavailable
from retouch.doctor.gpu_checks import GpuFact, GpuSources, gpu_facts


def gpu_host(**parts: Any) -> GpuSources:
    device = Device("NVIDIA L4", (8, 9), 12080, 24 << 30)
    whole = {
        "is_here": lambda: True,
        "open_cuda": lambda: SimpleNamespace(device=device),
        "load_tensorrt": lambda: SimpleNamespace(name="TensorRT 10.9.0"),
        "load_cvcuda": lambda: SimpleNamespace(__version__="0.19.0"),
    }
    return GpuSources(**{**whole, **parts})


def missing() -> Any:
    raise EngineUnavailable("it is not installed; pip install it")


def test_gpu_is_described_with_its_libraries():
    assert gpu_facts(gpu_host()) == [
        GpuFact("GPU", True, "NVIDIA L4, capability 8.9, 24 GiB, driver for CUDA 12.8"),
        GpuFact("TensorRT", True, "TensorRT 10.9.0"),
        GpuFact("CV-CUDA", True, "CV-CUDA 0.19.0"),
    ]


def test_each_missing_part_comes_with_its_remedy():
    facts = gpu_facts(gpu_host(open_cuda=missing, load_tensorrt=missing, load_cvcuda=missing))
    assert [fact.is_fine for fact in facts] == [False] * 3
    assert [fact.detail for fact in facts] == [
        "it is not installed; pip install it",
        "it is not installed; pip install it",
        "it is not installed; pip install it (without it pictures are prepared on the processor)",
    ]


def test_host_without_a_gpu_gets_one_line_and_loads_nothing():
    facts = gpu_facts(gpu_host(is_here=lambda: False, open_cuda=None, load_tensorrt=None, load_cvcuda=None))
    assert facts == [GpuFact("GPU", True, "no NVIDIA GPU here; the processor computes")]


def test_cvcuda_that_is_installed_and_does_not_load_is_a_warning_in_the_servers_own_words(tmp_path, monkeypatch):
    (tmp_path / "cvcuda.py").write_text("raise ImportError('libnvcv_types.so.0: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cvcuda", raising=False)
    fact = gpu_facts(gpu_host(load_cvcuda=GpuSources().load_cvcuda))[-1]
    assert (fact.name, fact.is_fine) == ("CV-CUDA", False)
    assert fact.detail.startswith("CV-CUDA does not load (libnvcv_types.so.0: cannot open shared object file); pip")
