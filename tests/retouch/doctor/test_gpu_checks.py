"""A host with a GPU gets a line for each part; one without gets a single line."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from engines.cuda.api import Device
from engines.errors import EngineUnavailable
from retouch.doctor.gpu_checks import GpuFact, GpuSources, gpu_facts
from retouch.gpu_setup.choice import describe_gpus
from retouch.gpu_setup.host import Driver, Gpu, GpuHost

L4 = GpuHost(Driver((580, 65, 6), (Gpu("NVIDIA L4", (8, 9)),)), (3, 12))


def gpu_host(**parts: Any) -> GpuSources:
    device = Device("NVIDIA L4", (8, 9), 12080, 24 << 30)
    whole = {
        "is_here": lambda: True,
        "open_cuda": lambda: SimpleNamespace(device=device),
        "load_tensorrt": lambda: SimpleNamespace(name="TensorRT 10.9.0"),
        "start_onnxruntime": lambda: SimpleNamespace(__version__="1.31.1"),
        "load_cvcuda": lambda: SimpleNamespace(__version__="0.19.0"),
        "ask_host": lambda: L4,
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


def test_each_missing_part_comes_with_its_remedy_and_all_with_one_command():
    none = {"open_cuda": missing, "load_tensorrt": missing, "start_onnxruntime": missing, "load_cvcuda": missing}
    facts = gpu_facts(gpu_host(**none))
    assert [fact.is_fine for fact in facts] == [False] * 4
    assert [fact.detail for fact in facts] == [
        "it is not installed; pip install it",
        "it is not installed; pip install it",
        "it is not installed; pip install it (without it pictures are prepared on the processor)",
        f"missing: GPU, TensorRT, CV-CUDA. One command installs what {describe_gpus(L4)} can have: retouch install-gpu",
    ]


def test_onnx_runtime_for_cuda_is_enough_where_there_is_no_tensorrt():
    facts = gpu_facts(gpu_host(load_tensorrt=missing))
    assert [fact.is_fine for fact in facts] == [True] * 3
    assert facts[1].detail == "not installed; ONNX Runtime 1.31.1 for CUDA computes in its place"


def test_a_driver_that_is_too_old_is_named_instead_of_a_useless_command():
    old = GpuHost(Driver((470, 82), L4.driver.gpus), (3, 12))
    assert gpu_facts(gpu_host(ask_host=lambda: old))[-1] == GpuFact(
        "GPU packages",
        False,
        "the driver 470.82 is too old: CUDA 12 needs 525, CUDA 13 needs 580. update the NVIDIA driver to 580 or later",
    )


def test_a_card_without_a_driver_is_a_warning():
    host = gpu_host(is_here=lambda: False, ask_host=lambda: GpuHost(Driver(problem="no driver for it"), (3, 12)))
    (fact,) = gpu_facts(host)
    assert not fact.is_fine
    assert fact.detail.startswith("an NVIDIA GPU cannot be used: no driver for it; the processor computes. install or")


def test_a_gpu_that_answers_without_a_device_node_is_a_warning_that_says_so():
    (fact,) = gpu_facts(gpu_host(is_here=lambda: False))
    assert not fact.is_fine
    assert fact.detail.startswith("nvidia-smi shows NVIDIA L4 (8.9)")
    assert "/dev has no device of it; the processor computes. " in fact.detail


def test_host_without_a_gpu_gets_one_line_and_loads_nothing():
    none = {"open_cuda": None, "load_tensorrt": None, "start_onnxruntime": None, "load_cvcuda": None}
    facts = gpu_facts(gpu_host(is_here=lambda: False, ask_host=lambda: GpuHost(Driver(), (3, 12)), **none))
    assert facts == [GpuFact("GPU", True, "no NVIDIA driver here; the processor computes")]


def test_cvcuda_that_is_installed_and_does_not_load_gives_the_servers_warning(tmp_path, monkeypatch):
    (tmp_path / "cvcuda.py").write_text("raise ImportError('libnvcv_types.so.0: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cvcuda", raising=False)
    fact = gpu_facts(gpu_host(load_cvcuda=GpuSources().load_cvcuda))[2]
    assert (fact.name, fact.is_fine) == ("CV-CUDA", False)
    assert fact.detail.startswith("CV-CUDA does not load (libnvcv_types.so.0: cannot open shared object file); ret")
