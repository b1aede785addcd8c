"""The first runtime that loads is installed, by pip from a folder of wheels; failures are reported and undone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from retouch.gpu_setup.choice import GpuChoice, RuntimeCandidate
from retouch.gpu_setup.errors import InstallFailed
from retouch.gpu_setup.installing import Checks, Installer
from retouch.gpu_setup.pip import Environment
from retouch.gpu_setup.record import RECORD_FILE, read_record

pytestmark = pytest.mark.slow  # each test runs pip several times

FACTS = ("NVIDIA L4 8.9", "driver 580")
FULL = RuntimeCandidate("trt", "TensorRT", ("full-libs==1.0", "full-bindings==1.0"))
RTX = RuntimeCandidate("trt", "TensorRT-RTX", ("rtx==1.0",))
ORT = RuntimeCandidate("onnxrt-cuda", "ONNX Runtime", ("ort-gpu==2.0",), replaces_onnxruntime=True)
CHOICE = GpuChoice(cuda=13, packages=("driver-api==13.0",), candidates=(FULL, RTX, ORT), passed_over=(("X", "never"),))
CHECKS = Checks(
    device="import driver_api; print(driver_api.open())",
    runtimes=(
        ("trt", "import trt; print(trt.name)"),
        ("onnxrt-cuda", "import onnxruntime as o; assert o.cuda, 'no CUDA provider'; print(o.__version__)"),
    ),
    onnxruntime="import onnxruntime",
)
OPENS = "def open():\n    return 'NVIDIA L4'\n"
CPU_ORT, GPU_ORT = "__version__ = '2.0'\ncuda = False\n", "__version__ = '2.0'\ncuda = True\n"


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def installer(environment, said) -> Installer:
    return Installer(environment, said.append, CHECKS)


@pytest.fixture(autouse=True)
def driver_api(write_wheel) -> Path:
    return write_wheel("driver-api==13.0", "driver_api.py", OPENS)


def onnxruntime_of(environment) -> str:
    return environment.ask("import onnxruntime as o; print(o.__version__, o.cuda)")[0]


def test_the_best_runtime_is_installed_and_the_second_time_there_is_nothing_to_do(installer, write_wheel, said):
    write_wheel("full-libs==1.0", "full_libs.py", "")
    write_wheel("full-bindings==1.0", "trt.py", "name = 'TensorRT 11.4'\n")
    assert installer.install(CHOICE, FACTS) == "TensorRT 11.4"
    assert said == [
        "installing for CUDA 13: driver-api==13.0",
        "the GPU opens: NVIDIA L4",
        "not X: never",
        "installing TensorRT: full-libs==1.0, full-bindings==1.0",
    ]
    assert installer.installed(CHOICE, FACTS) == "TensorRT 11.4"
    assert installer.installed(CHOICE, ("another GPU",)) == ""


def test_a_package_that_cannot_be_installed_is_followed_by_the_next_runtime(installer, write_wheel, said):
    write_wheel("full-libs==1.0", "full_libs.py", "")
    write_wheel("rtx==1.0", "trt.py", "name = 'TensorRT-RTX 1.7'\n")
    assert installer.install(CHOICE, FACTS) == "TensorRT-RTX 1.7"
    assert "not TensorRT: pip could not install full-libs==1.0, full-bindings==1.0 (its reason is above)" in said


def test_a_runtime_that_does_not_load_is_followed_by_the_next(installer, write_wheel, environment, said):
    environment.install([str(write_wheel("onnxruntime==2.0", "onnxruntime.py", CPU_ORT))])
    write_wheel("rtx==1.0", "trt.py", "raise OSError('libcuda.so.1: cannot open')\n")
    write_wheel("ort-gpu==2.0", "onnxruntime.py", GPU_ORT)
    assert installer.install(CHOICE, FACTS) == "ONNX Runtime 2.0"
    assert "not TensorRT-RTX: it is installed, but does not load: OSError: libcuda.so.1: cannot open" in said
    assert onnxruntime_of(environment) == "2.0 True"
    assert installer.installed(CHOICE, FACTS) == "ONNX Runtime 2.0"


def test_a_cpu_package_that_overwrote_the_gpus_is_overwritten_again(installer, write_wheel, environment):
    cpu = write_wheel("onnxruntime==2.0", "onnxruntime.py", CPU_ORT)
    environment.install([str(cpu)])
    write_wheel("ort-gpu==2.0", "onnxruntime.py", GPU_ORT)
    choice = replace(CHOICE, candidates=(ORT,))
    installer.install(choice, FACTS)
    environment.install([str(cpu)], over=True)
    assert installer.installed(CHOICE, FACTS) == ""
    assert installer.install(choice, FACTS) == "ONNX Runtime 2.0"
    assert onnxruntime_of(environment) == "2.0 True"


def test_wheels_are_taken_from_the_ways_own_source(installer, write_wheel, tmp_path):
    (tmp_path / "more").mkdir()
    write_wheel("full-libs==1.0", "full_libs.py", "", tmp_path / "more")
    write_wheel("full-bindings==1.0", "trt.py", "name = 'TensorRT 11.4'\n", tmp_path / "more")
    choice = replace(CHOICE, candidates=(FULL._replace(source=str(tmp_path / "more")),))
    assert installer.install(choice, FACTS) == "TensorRT 11.4"


def test_a_systems_tensorrt_is_linked(installer, environment, tmp_path):
    for name, text in {"tensorrt": "from tensorrt_libs import name\n", "tensorrt_libs": "name = 'T 10'\n"}.items():
        (tmp_path / "system" / name).mkdir(parents=True)
        (tmp_path / "system" / name / "__init__.py").write_text(text)
    linked = RuntimeCandidate("trt", "TensorRT of the system", folder=tmp_path / "system" / "tensorrt")
    checks = replace(CHECKS, runtimes=(("trt", "import tensorrt; print(tensorrt.name)"),))
    again = [
        Installer(environment, print, checks).install(replace(CHOICE, candidates=(linked,)), FACTS) for _ in range(2)
    ]
    assert again == ["T 10", "T 10"]


def test_an_installation_that_fails_says_how_to_go_on_and_how_to_serve_meanwhile(installer, driver_api, environment):
    driver_api.unlink()
    with pytest.raises(InstallFailed, match=r"could not install driver-api==13\.0 .*`make serve`.*`make serve CPU=1`"):
        installer.install(CHOICE, FACTS)
    assert read_record(environment.folder).state == "unfinished"
    assert installer.installed(CHOICE, FACTS) == ""


def test_a_gpu_that_does_not_open_ends_the_installation_before_a_runtime_is_fetched(installer, write_wheel, said):
    write_wheel("driver-api==13.0", "driver_api.py", "def open():\n    raise OSError('driver too old')\n")
    write_wheel("rtx==1.0", "trt.py", "name = 'TensorRT-RTX 1.7'\n")
    with pytest.raises(InstallFailed, match="the GPU does not open: OSError: driver too old"):
        installer.install(CHOICE, FACTS)
    assert not [line for line in said if "TensorRT" in line]


def test_without_any_runtime_every_reason_is_named_and_the_cpus_onnx_runtime_is_as_before(
    installer, write_wheel, environment
):
    environment.install([str(write_wheel("onnxruntime==2.0", "onnxruntime.py", CPU_ORT))])
    write_wheel("ort-gpu==2.0", "onnxruntime.py", "raise OSError('libcublas')\n")
    with pytest.raises(InstallFailed, match=r"TensorRT: pip could.*TensorRT-RTX: pip could.*libcublas"):
        installer.install(CHOICE, FACTS)
    assert onnxruntime_of(environment) == "2.0 False"


def test_an_installation_that_was_cut_off_is_undone_for_the_cpu(installer, write_wheel, environment, said):
    environment.install([str(write_wheel("onnxruntime==2.0", "onnxruntime.py", CPU_ORT))])
    write_wheel("ort-gpu==2.0", "onnxruntime.py", "raise OSError('half a file')\n")
    write_wheel("driver-api==13.0", "driver_api.py", "def open():\n    raise OSError('gone')\n")
    with pytest.raises(InstallFailed):
        installer.install(CHOICE, FACTS)
    environment.install(["ort-gpu==2.0"])  # as if killed at this point
    assert onnxruntime_of(environment) == ""
    assert installer.restore_cpu()
    assert onnxruntime_of(environment) == "2.0 False"
    assert not (environment.folder / RECORD_FILE).exists()
    assert not installer.restore_cpu()


def test_a_finished_installation_is_left_alone_by_the_cpu(installer, write_wheel, environment):
    write_wheel("rtx==1.0", "trt.py", "name = 'TensorRT-RTX 1.7'\n")
    installer.install(CHOICE, FACTS)
    assert not installer.restore_cpu()
    assert installer.installed(CHOICE, FACTS) == "TensorRT-RTX 1.7"


def test_the_version_that_the_environment_has_is_put_back_not_that_of_an_earlier_attempt(
    installer, write_wheel, environment, driver_api
):
    environment.install([str(write_wheel("onnxruntime==2.0", "onnxruntime.py", CPU_ORT))])
    driver_api.unlink()
    with pytest.raises(InstallFailed):
        installer.install(CHOICE, FACTS)
    environment.install([str(write_wheel("onnxruntime==2.1", "onnxruntime.py", CPU_ORT.replace("2.0", "2.1")))])
    environment.install([str(write_wheel("ort-gpu==2.0", "onnxruntime.py", "raise OSError('half')\n"))], over=True)
    assert installer.restore_cpu()
    assert onnxruntime_of(environment) == "2.1 False"


def test_packages_that_are_there_and_work_are_recorded_and_nothing_is_installed(
    installer, write_wheel, environment, driver_api, said
):
    environment.install([str(driver_api), str(write_wheel("ort-gpu==2.0", "onnxruntime.py", GPU_ORT))])
    assert installer.installed(CHOICE, FACTS) == "ONNX Runtime 2.0"
    assert read_record(environment.folder).state == "done"
    assert installer.installed(CHOICE, ("another GPU",)) == ""
    assert said == []


def test_packages_that_are_there_and_do_not_work_are_not_recorded(installer, write_wheel, environment, driver_api):
    environment.install([str(driver_api), str(write_wheel("ort-gpu==2.0", "onnxruntime.py", CPU_ORT))])
    assert installer.installed(CHOICE, FACTS) == ""
    assert read_record(environment.folder) is None


def test_an_onnx_runtime_whose_cuda_provider_does_not_start_does_not_work(tmp_path, monkeypatch):
    (tmp_path / "onnxruntime.py").write_text(
        "from types import SimpleNamespace as SessionOptions\n"
        "__version__ = '2.0'\n"
        "def set_default_logger_severity(level):\n    pass\n"
        "def get_available_providers():\n    return ['CUDAExecutionProvider', 'CPUExecutionProvider']\n"
        "class InferenceSession:\n"
        "    def __init__(self, model, options, providers):\n        assert model\n"
        "    def get_providers(self):\n        return ['CPUExecutionProvider']\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found, error = Environment.of_this_process().ask(Checks().of("onnxrt-cuda"))
    assert found == ""
    assert "CUDA provider does not start here" in error


def test_a_record_that_is_damaged_counts_as_none(environment):
    (environment.folder / RECORD_FILE).write_text("{")
    assert read_record(environment.folder) is None


def test_an_environment_without_pip_is_an_error_with_a_way_out(environment, said):
    gone = replace(environment, python=environment.folder / "nothing")
    with pytest.raises(InstallFailed, match=r"pip does not start.*CPU=1"):
        Installer(gone, said.append, CHECKS).install(CHOICE, FACTS)


@pytest.mark.parametrize("on_stderr", [False, True])
def test_what_pip_says_stays_out_of_what_programs_read(tmp_path, capfd, on_stderr):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho Collecting\n")
    python.chmod(0o755)
    Environment(python, tmp_path, on_stderr).install(["numpy"])
    assert capfd.readouterr() == (("", "Collecting\n") if on_stderr else ("Collecting\n", ""))
