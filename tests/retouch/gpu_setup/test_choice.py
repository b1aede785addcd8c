"""The packages for a host depend on its driver, GPUs, Python, processor and the package indexes it can reach."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from retouch.gpu_setup.choice import choose_packages, describe_gpus, without_first
from retouch.gpu_setup.host import NVIDIA_INDEX, Driver, Gpu, GpuHost, SystemTensorRt

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[3]
TURING, A100, AMPERE = Gpu("NVIDIA T4", (7, 5)), Gpu("NVIDIA A100", (8, 0)), Gpu("NVIDIA RTX 3090", (8, 6))
ADA, HOPPER = Gpu("NVIDIA L4", (8, 9)), Gpu("NVIDIA H200", (9, 0))
B200, BLACKWELL = Gpu("NVIDIA B200", (10, 0)), Gpu("NVIDIA RTX 5090", (12, 0))
VOLTA = Gpu("Tesla V100", (7, 0))
PASCAL = Gpu("GeForce GTX 1060", (6, 1))
NEW, OLD = (580, 159, 4), (550, 54, 14)

FULL13, FULL12 = "tensorrt-cu13-libs", "tensorrt-cu12-libs"
RTX13, RTX12 = "tensorrt-rtx-cu13-libs", "tensorrt-rtx-cu12-libs"
ORT13, ORT12, ORT310 = "onnxruntime-gpu 1.31.1", "onnxruntime-gpu 1.26.0", "onnxruntime-gpu 1.23.2"


def host(*gpus: Gpu, driver: tuple[int, ...] = NEW, **others) -> GpuHost:
    return GpuHost(Driver(driver, gpus), **({"python": (3, 12)} | others))


def candidates(choice) -> list[str]:
    """Name each candidate by its first package, ONNX Runtime also by its version, which decides the version of CUDA."""
    firsts = [Requirement(candidate.requirements[0]) for candidate in choice.candidates]
    return [f"{one.name} {str(one.specifier)[2:]}" if "onnx" in one.name else one.name for one in firsts]


@pytest.mark.parametrize(
    ("of", "cuda", "expected"),
    [
        pytest.param(host(TURING), 13, [RTX13, ORT13], id="Turing"),
        pytest.param(host(AMPERE), 13, [RTX13, ORT13], id="Ampere for games"),
        pytest.param(host(ADA), 13, [RTX13, ORT13], id="Ada"),
        pytest.param(host(BLACKWELL), 13, [RTX13, ORT13], id="Blackwell for games"),
        pytest.param(host(A100), 13, [ORT13], id="A100: TensorRT-RTX has no data-centre GPUs"),
        pytest.param(host(HOPPER), 13, [ORT13], id="H200"),
        pytest.param(host(B200), 13, [ORT13], id="B200"),
        pytest.param(host(ADA, HOPPER), 13, [ORT13], id="one of two is not supported"),
        pytest.param(host(HOPPER, nvidia_index=NVIDIA_INDEX), 13, [FULL13, ORT13], id="H200, NVIDIA's index"),
        pytest.param(host(ADA, nvidia_index=NVIDIA_INDEX), 13, [FULL13, RTX13, ORT13], id="Ada, NVIDIA's index"),
        pytest.param(host(ADA, driver=OLD), 12, [RTX12, ORT12], id="driver for CUDA 12"),
        pytest.param(host(HOPPER, driver=OLD, nvidia_index="/w"), 12, [FULL12, ORT12], id="CUDA 12, wheels"),
        pytest.param(host(ADA, driver=(580, 0)), 13, [RTX13, ORT13], id="first driver of CUDA 13"),
        pytest.param(host(ADA, driver=(579, 9)), 12, [RTX12, ORT12], id="last driver of CUDA 12"),
        pytest.param(host(ADA, driver=(525, 60)), 12, [RTX12, ORT12], id="first driver of CUDA 12"),
        pytest.param(host(HOPPER, python=(3, 10)), 13, [ORT310], id="Python 3.10 has an older ONNX Runtime"),
        pytest.param(host(ADA, PASCAL), 13, [RTX13, ORT13], id="an old second GPU does not count"),
        pytest.param(host(ADA, machine="aarch64"), 13, [], id="Arm, nothing on PyPI"),
        pytest.param(host(HOPPER, machine="aarch64", nvidia_index="/w"), 13, [FULL13], id="Arm, NVIDIA's index"),
    ],
)
def test_a_host_gets_the_best_runtime_that_it_can_have_and_the_next_ones_after_it(of, cuda, expected):
    choice = choose_packages(of)
    assert (choice.cuda, candidates(choice), choice.why_cpu) == (cuda, expected, "")
    assert {"cuda-python", f"cvcuda-cu{cuda}", "nvidia-ml-py", "nvtx"} == {Requirement(p).name for p in choice.packages}


@pytest.mark.parametrize(
    ("of", "why", "to_do"),
    [
        (GpuHost(Driver(), (3, 12)), "no NVIDIA driver here", ""),
        (
            GpuHost(Driver(problem="nvidia-smi fails: x"), (3, 12)),
            "an NVIDIA GPU cannot be used: nvidia-smi",
            "install",
        ),
        (host(VOLTA), "Tesla V100 (7.0) is too old", "newer GPU"),
        (host(PASCAL, VOLTA), "GeForce GTX 1060 (6.1) is too old", "newer GPU"),
        (host(ADA, driver=(520, 61)), "the driver 520.61 is too old: CUDA 12 needs 525", "580"),
        (host(ADA, system="win32"), "the GPU packages are for Linux, this is win32", "WSL"),
    ],
)
def test_a_host_without_suitable_packages_gets_the_reason_and_the_remedy(of, why, to_do):
    choice = choose_packages(of)
    assert choice.why_cpu.startswith(why)
    assert to_do in choice.to_do
    assert bool(choice.to_do) == bool(to_do)
    assert (choice.packages, choice.candidates) == ((), ())


def test_tensorrt_that_can_be_imported_is_kept():
    (candidate,) = choose_packages(host(HOPPER, tensorrt="TensorRT 10.9.0", nvidia_index=NVIDIA_INDEX)).candidates
    assert (candidate.name, candidate.requirements, candidate.engine) == ("TensorRT 10.9.0", (), "trt")


def test_tensorrt_rtx_that_does_not_support_the_gpu_is_not_kept():
    assert candidates(choose_packages(host(HOPPER, tensorrt="TensorRT-RTX 1.7.1"))) == [ORT13]
    assert choose_packages(host(ADA, tensorrt="TensorRT-RTX 1.7.1")).candidates[0].name == "TensorRT-RTX 1.7.1"


def test_the_systems_tensorrt_is_linked_rather_than_downloaded():
    folder = Path("/usr/lib/python3/dist-packages/tensorrt")
    of = host(HOPPER, system_tensorrt=SystemTensorRt("10.9.0", folder), nvidia_index=NVIDIA_INDEX)
    first, then = choose_packages(of).candidates
    assert (first.folder, first.requirements) == (folder, ())
    assert then.engine == "onnxrt-cuda"


def test_only_nvidias_index_is_asked_for_the_full_tensorrt():
    choice = choose_packages(host(ADA, nvidia_index="https://mirror.example/simple"))
    assert [candidate.source for candidate in choice.candidates] == ["https://mirror.example/simple", "", ""]


def test_an_old_gpu_beside_a_good_one_is_named_with_what_to_do():
    (gpu, why), *_ = choose_packages(host(ADA, VOLTA)).passed_over
    assert gpu == "Tesla V100 (7.0)"
    assert "too old" in why
    assert "CUDA_VISIBLE_DEVICES" in why


def test_skipped_runtimes_are_listed_with_reasons():
    assert dict(choose_packages(host(HOPPER)).passed_over) == {
        "TensorRT": f"NVIDIA's package index ({NVIDIA_INDEX}) does not answer, and the system has none",
        "TensorRT-RTX": "it does not support NVIDIA H200 (9.0)",
    }
    assert dict(choose_packages(host(ADA, machine="aarch64")).passed_over)["TensorRT-RTX"].endswith("this is aarch64")


def test_a_runtime_that_failed_is_followed_by_the_next():
    choice = without_first(choose_packages(host(ADA)), "pip could not install it")
    assert candidates(choice) == [ORT13]
    assert choice.passed_over[-1] == ("TensorRT-RTX", "pip could not install it")


def test_equal_gpus_are_counted():
    assert describe_gpus(host(ADA, HOPPER, ADA)) == "2 × NVIDIA L4 (8.9), NVIDIA H200 (9.0), driver 580.159.4"


@pytest.mark.parametrize(("extra", "driver"), [("gpu", NEW), ("gpu-cu12", OLD)])
def test_the_pins_are_within_the_extra(extra, driver):
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"][extra]
    needed = [one for one in map(Requirement, lines) if one.name != "retouch"]
    pinned = {one.name: one.specifier for one in map(Requirement, choose_packages(host(ADA, driver=driver)).packages)}
    assert set(pinned) == {one.name for one in needed}
    assert all(one.specifier.contains(str(pinned[one.name])[2:]) for one in needed)


def test_the_image_has_the_same_packages_for_cuda_13():
    text = (ROOT / "requirements" / "gpu.txt").read_text()
    assert sorted(re.findall(r"^[\w-]+==.+$", text, re.MULTILINE)) == sorted(choose_packages(host(ADA)).packages)
    image = (ROOT / "docker" / "gpu.Dockerfile").read_text()
    full = choose_packages(host(HOPPER, nvidia_index=NVIDIA_INDEX)).candidates[0].requirements[0]
    assert f"TENSORRT=tensorrt-cu13=={full.partition('==')[2]}\n" in image
    assert f"TENSORRT_INDEX={NVIDIA_INDEX}\n" in image


def test_whether_the_index_answers_changes_nothing_else():
    assert choose_packages(host(ADA)) == replace(
        choose_packages(host(ADA, nvidia_index="x")),
        candidates=choose_packages(host(ADA)).candidates,
        passed_over=choose_packages(host(ADA)).passed_over,
    )
